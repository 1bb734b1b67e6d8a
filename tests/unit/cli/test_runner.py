"""The options about who does the work."""

import json

from click.testing import CliRunner

from promptlint.cli import cli
from promptlint.cli._runner import _teller


def test_options_of_ray_without_it_are_named(tmp_path):
    (tmp_path / "log.jsonl").write_text(json.dumps({"tokens": [1, 2]}) + "\n")
    result = CliRunner().invoke(cli, ["simulate", str(tmp_path), "--workers", "2", "--partitions", "4"])
    assert result.exit_code == 0
    assert "--workers has no effect: only with --runner ray" in result.stderr
    assert "--partitions has no effect" in result.stderr


def test_in_a_file_progress_is_a_line_when_a_stage_is_done(capsys):
    tell = _teller()
    for done in range(1, 1001):
        tell(f"{done:,} of 1,000 inputs tokenised")
    tell("simulating all requests as one stream")
    assert capsys.readouterr().err.splitlines() == [
        "1,000 of 1,000 inputs tokenised",
        "simulating all requests as one stream",
    ]
