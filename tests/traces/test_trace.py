import os
from pathlib import Path

import pytest

from paternoster_traces.trace import TraceError, TraceRow, read_trace


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "trace"
        path.write_text(text)
        return path

    return write


def test_simplified_csv_starts_at_zero_in_order_of_arrival(write):
    path = write("arrival_s,prompt_tokens,output_tokens\n7.5,396,109\n5,374,44\n")
    assert read_trace(path) == [TraceRow(0.0, 374, 44), TraceRow(2.5, 396, 109)]


def test_azure_csv_reads_seven_digit_fractions_and_offsets(write):
    path = write(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
    )
    rows = read_trace(path)
    assert [(row.prompt_tokens, row.output_tokens) for row in rows] == [(374, 44), (396, 109)]
    assert rows[1].arrival_s == pytest.approx(4.314579, abs=1e-6)
    path = write("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n")
    assert read_trace(path) == [TraceRow(0.0, 2162, 5)]


def test_burstgpt_leaves_out_failed_requests(write):
    path = write(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,0,1087,Conversation log\n"
        "118,GPT-4,417,276,693,API log\n"
    )
    assert read_trace(path) == [TraceRow(0.0, 472, 18), TraceRow(113.0, 417, 276)]


def test_mooncake_json_lines_and_simplified_csv_give_the_same_rows(write):
    expected = [TraceRow(0.0, 1200, 52, (0, 1, 2)), TraceRow(0.105, 1800, 26, (0, 3, 4, 5))]
    jsonl = (
        '{"timestamp": 0, "input_length": 1200, "output_length": 52, "hash_ids": [0, 1, 2]}\n\n'
        '{"timestamp": 105, "input_length": 1800, "output_length": 26, "hash_ids": [0, 3, 4, 5]}\n'
    )
    assert read_trace(write(jsonl)) == expected
    simplified = "arrival_s,prompt_tokens,output_tokens,prefix_block_ids_512\n0,1200,52,0-2\n.105,1800,26,0 3-5\n"
    assert read_trace(write(simplified)) == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "arrival_s,prompt_tokens,output_tokens\n0,12,3\n1,many,3\n",
            "line 3, column prompt_tokens: 'many': must be a number",
        ),
        ("arrival_s,prompt_tokens,output_tokens\n0,12.5,3\n", "column prompt_tokens: '12.5': must be a whole number"),
        ("arrival_s,prompt_tokens,output_tokens\n-1,12,3\n", "line 2, column arrival_s: '-1': must be a finite number"),
        ("arrival_s,prompt_tokens,output_tokens\nnan,12,3\n", "column arrival_s: 'nan': must be a finite number"),
        ("arrival_s,prompt_tokens,output_tokens\n0,12\n", "line 2, column output_tokens: is missing"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,12,3\n", "line 2, column TIMESTAMP: 'noon': must be a date"),
        (
            "when,what\n0,1\n",
            "has the columns when, what: must have arrival_s, prompt_tokens, output_tokens; or TIMESTAMP",
        ),
        ('{"timestamp": 0, "input_length": 1, "output_length": 1}\n{oops\n', "line 2: is not JSON"),
        ('{"timestamp": 0, "input_length": 1, "output_length": 1}\n[1]\n', "line 2: must be a JSON object, not list"),
        (
            '{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": ["x"]}',
            "column hash_ids: ['x']: must be",
        ),
        (
            "arrival_s,prompt_tokens,output_tokens,prefix_block_ids_512\n0,1,1,0-x\n",
            "column prefix_block_ids_512: '0-x'",
        ),
        ("arrival_s,prompt_tokens,output_tokens\n0,12,0\n", "has no row with a prompt and an output"),
        ("", "has no row"),
    ],
)
def test_a_bad_file_is_named_with_line_and_column(write, text, complaint):
    path = write(text)
    with pytest.raises(TraceError) as error:
        read_trace(path)
    assert str(error.value).startswith(f"{path}: ")
    assert complaint in str(error.value)


def test_a_missing_or_binary_file_is_named(tmp_path):
    with pytest.raises(TraceError, match=r"nowhere\.csv: cannot be read: No such file"):
        read_trace(tmp_path / "nowhere.csv")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(TraceError, match="binary: is not a text file"):
        read_trace(tmp_path / "binary")


def test_the_published_traces_are_read_whole():
    folder = Path(os.environ.get("PATERNOSTER_TRACES", Path(__file__).parents[4] / "shared/traces"))
    if not folder.is_dir():
        pytest.skip("no folder of traces: set PATERNOSTER_TRACES")
    assert len(read_trace(folder / "azure_llm_2023_conv.csv")) == 19_366
    mooncake = read_trace(folder / "mooncake_fast25_conversation.csv")
    assert len(mooncake) == 12_031
    assert mooncake[0].prefix_blocks == tuple(range(14))
