"""Under spark-submit (as a SparkApplication's driver runs) its settings hold."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from fmqspark.spark import session

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

NAMES = ("spark.app.name", "spark.driver.host", "spark.driver.bindAddress", "spark.local.dir")
SCRIPT = f"""
import json, sys
from fmqspark.spark.session import open_session

with open_session(1) as session:
    assert session.sparkContext.parallelize([1, 2]).sum() == 3
    conf = session.sparkContext.getConf()
    with open("shown", "w") as file:
        json.dump([conf.get(name) for name in {NAMES}], file)
sys.exit(2)
"""


def test_executors_find_the_driver_at_spark_submits_address(tmp_path: Path) -> None:
    """And the job's exit code is spark-submit's."""
    given = ["check-1", "127.0.0.2", "127.0.0.3", str(tmp_path / "local")]
    options = [w for n, v in zip(NAMES, given, strict=True) for w in ("--conf", f"{n}={v}")]
    (tmp_path / "job.py").write_text(SCRIPT)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    with session._java(tmp_path):
        python = {"PYTHONPATH": os.pathsep.join(sys.path), "PYSPARK_PYTHON": sys.executable}
        done = subprocess.run(
            [submit, "--master", "local[1]", *options, "job.py"],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env=os.environ | python,
        )
    assert done.returncode == 2, done.stderr
    assert json.loads((tmp_path / "shown").read_text()) == given
