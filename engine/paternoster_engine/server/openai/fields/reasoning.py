"""How much a model thinks before it answers, and whether answers show that."""

from typing import Any, Literal

from pydantic import Field

from paternoster_engine.server.openai.fields.body import Body, report_ignored

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class ReasoningFields(Body):
    include_reasoning: bool = Field(
        default=True, description="false: the answer has no reasoning, though its tokens count"
    )
    reasoning_effort: Effort | None = Field(
        default=None,
        description="for templates that read it, or enable_thinking, which none makes false; ignored by others",
    )

    def reasoning_variables(self, template: str) -> dict[str, Any]:
        """Of the chat template. An effort is a hint: where the template reads none, it is reported as ignored."""
        effort = self.reasoning_effort
        if effort is None:
            return {}
        if "reasoning_effort" in template:
            return {"reasoning_effort": effort}
        if "enable_thinking" in template:
            return {"enable_thinking": effort != "none"}
        if effort != "none":
            report_ignored("reasoning_effort")
        return {}
