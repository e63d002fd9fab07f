"""The policy that a journal was written under, so that its readers know limits and windows without the file."""

from typing import Final

from tuner.record.journal import Journal
from tuner.settings.model import Policy

STATE_NAME: Final = "policy"
"""Under which it lies in the journal. It names files of tokens, and holds none."""


def save_policy(journal: Journal, policy: Policy) -> None:
    """Keep a policy in the journal."""
    journal.save_state(STATE_NAME, policy.model_dump_json())


def kept_policy(journal: Journal) -> Policy | None:
    """Return the policy that the journal holds; None where it holds none, or one of another release."""
    document = journal.load_state(STATE_NAME)
    if document is None:
        return None
    try:
        return Policy.model_validate_json(document)
    except ValueError:  # Of pydantic's kind.
        return None
