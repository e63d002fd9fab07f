"""What would have been: a recent interval as it came, under another setting than the one that was in force."""

from tuner.twin.calibration import knob_row
from tuner.twin.model import from_started_log, simulate_records, started_log
from tuner.twin.parameters import TwinParameters
from tuner.twin.records import record_interval
from tuner.values.knobs import KnobValues
from tuner.values.metrics import METRIC_COUNT, MetricVector
from tuner.values.stages import Observation


def counterfactual(
    observation: Observation, knobs: KnobValues, parameters: TwinParameters
) -> tuple[MetricVector, MetricVector] | None:
    """Return what was observed over the newest interval, and what the twin says of it under a setting.

    The twin meets the work that really arrived, from the state in which the interval began. Its levels are those of
    `parameters`: taken from before a change, they hold what the twin could not explain then, and nothing of what the
    change has done since.

    Args:
        observation: The interval is the last `HORIZON_SECONDS` of its history.
        knobs: The setting that would have been in force.
        parameters: The twin as it was calibrated before the change.

    Returns:
        Mean metrics as observed and as expected, each of shape (13,), NaN where there is nothing to compare; None
        where the history does not reach over an interval, or has too many gaps.
    """
    record = record_interval(observation, knob_row(knobs))
    if record is None:
        return None
    raw = simulate_records(record.knobs[None], record.scenario, parameters.log_values[None])[0, 0, :METRIC_COUNT]
    return record.observed[:METRIC_COUNT], from_started_log(started_log(raw) + parameters.levels)
