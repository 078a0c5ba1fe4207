import dev.langchain4j.agent.tool.P;
import dev.langchain4j.agent.tool.Tool;
import dev.langchain4j.model.chat.request.ResponseFormat;
import dev.langchain4j.model.chat.request.ToolChoice;
import dev.langchain4j.model.openai.OpenAiChatModel;
import dev.langchain4j.model.openai.OpenAiChatRequestParameters;
import dev.langchain4j.model.openai.OpenAiStreamingChatModel;
import dev.langchain4j.model.chat.Capability;
import dev.langchain4j.model.chat.response.ChatResponse;
import dev.langchain4j.model.chat.response.StreamingChatResponseHandler;
import dev.langchain4j.service.AiServices;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** A whole and a streamed answer, an object by its schema, and a tool that langchain4j runs; URL and MODEL are given. */
public class Langchain4j {
    static final String QUESTION = "What is the capital of Japan?";

    enum City { KYOTO, PARIS, TOKYO }

    record Capital(City city) {}

    interface Guide {
        Capital capital(String question);
    }

    interface Agent {
        String answer(String question);
    }

    static class Weather {
        City asked;

        @Tool("The weather in a city")
        String weather(@P("the city") City city) {
            asked = city;
            return "rain in " + city;
        }
    }

    public static void main(String[] arguments) throws Exception {
        String url = arguments[0] + "/v1", name = arguments[1];
        OpenAiChatModel model = OpenAiChatModel.builder().baseUrl(url).apiKey("none").modelName(name).temperature(0.0)
            .maxTokens(60).maxRetries(0).strictJsonSchema(true)
            .supportedCapabilities(Set.of(Capability.RESPONSE_FORMAT_JSON_SCHEMA)).build();
        OpenAiStreamingChatModel streaming = OpenAiStreamingChatModel.builder().baseUrl(url).apiKey("none")
            .modelName(name).temperature(0.0).maxTokens(60).build();
        CompletableFuture<String> streamed = new CompletableFuture<>();
        StringBuilder pieces = new StringBuilder();
        streaming.chat(QUESTION, new StreamingChatResponseHandler() {
            public void onPartialResponse(String piece) {
                pieces.append(piece);
            }

            public void onCompleteResponse(ChatResponse whole) {
                streamed.complete(whole.aiMessage().text());
            }

            public void onError(Throwable error) {
                streamed.completeExceptionally(error);
            }
        });
        String whole = model.chat(QUESTION);
        String stream = streamed.get(300, TimeUnit.SECONDS);
        check(whole.contains("Tokyo") && whole.equals(stream) && stream.equals(pieces.toString()), whole + stream);
        Capital capital = AiServices.create(Guide.class, model).capital(QUESTION);
        check(capital.city() != null, String.valueOf(capital));
        Weather weather = new Weather();
        String last = AiServices.builder(Agent.class).tools(weather)
            .chatModel(model)
            .chatRequestTransformer((request, memory) -> request.messages().size() > 1 ? request : request.toBuilder()
                .parameters(OpenAiChatRequestParameters.builder().overrideWith(request.parameters())
                    .toolChoice(ToolChoice.REQUIRED).build())
                .build())
            .build().answer("What is the weather in Tokyo?");
        check(weather.asked == City.TOKYO && last != null && !last.isBlank(), weather.asked + last);
        System.out.println("2 answers, " + capital + ", rain in " + weather.asked);
    }

    static void check(boolean holds, String found) {
        if (!holds) {
            throw new AssertionError(found);
        }
    }
}
