"""The gate: runs every guard and decides.

The decision is the severest that any failed guard asks for: reject over hold over apply. Nothing is weighed: one
failed guard is enough, and a stricter limit can only turn a pass into a hold.
"""

from tuner.judge.case import Case
from tuner.judge.guards import GUARDS, tuner_mode
from tuner.values.stages import Decision, Finding, Verdict


def judge(case: Case) -> Verdict:
    """Return the verdict on a proposal, with all findings in the order in which the guards ran.

    Args:
        case: All that is known of the proposal.

    Returns:
        A verdict whose reason is the first of its severest failed findings, or the proposal's own reason where it is
        applied, or would be if the tuner's mode let it.
    """
    findings = tuple(guard(case) for guard in GUARDS)
    failed = [finding for finding in findings if not finding.passed]
    decision = _severest(failed)
    return Verdict(
        cycle_id=case.proposal.cycle_id, decision=decision, reason=_reason(case, decision, failed), findings=findings
    )


def _severest(failed: list[Finding]) -> Decision:
    severities = {finding.severity for finding in failed}
    if Decision.REJECT in severities:
        return Decision.REJECT
    return Decision.HOLD if severities else Decision.APPLY


def _reason(case: Case, decision: Decision, failed: list[Finding]) -> str:
    if not failed:
        return case.proposal.reason
    if [finding.guard for finding in failed] == [tuner_mode.__name__]:
        return f"would have applied: {case.proposal.reason}; {failed[0].sentence}"
    return next(finding.sentence for finding in failed if finding.severity is decision)
