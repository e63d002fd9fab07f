from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.errors import TraceError
from tuner.reference.inference import (
    LLAMA2_70B_H100,
    RATE_WINDOW_SECONDS,
    Rates,
    Requests,
    ServiceModel,
    read_azure,
    read_mooncake,
    read_servegen,
    request_trace,
    sample_arrivals,
    with_tokens,
)
from tuner.reference.workload import TaskKind


def rates(*rows: tuple[int, float, float, float]) -> Rates:
    client, start, rate, variation = zip(*rows, strict=True)
    return Rates(np.array(client), np.array(start, dtype=float), np.array(rate, dtype=float), np.array(variation))


def steady(per_second: float, variation: float, windows: int = 50) -> Rates:
    return rates(*((3, index * RATE_WINDOW_SECONDS, per_second, variation) for index in range(windows)))


def requests(count: int, *, context: float, generated: float) -> Requests:
    return Requests(np.arange(float(count)), np.full(count, context), np.full(count, generated), np.zeros(count, int))


def test_a_request_takes_the_time_that_was_measured_for_its_tokens() -> None:
    seconds = LLAMA2_70B_H100.seconds(np.array([1024.0]), np.array([128.0]))

    # 4.905 s was measured from end to end for 1,024 + 128 tokens.
    assert seconds[0] == pytest.approx(4.905, rel=0.02)


def test_requests_become_inference_tasks_that_know_their_model_and_their_source() -> None:
    service = ServiceModel(
        prefill_tokens_per_second=100, decode_seconds_per_token=0.1, overhead_seconds=0, source="made up"
    )
    asked = Requests(np.array([0.0, 1.0, 2.0]), np.array([100.0, 0.0, 50.0]), np.array([10.0, 0.0, 0.0]), np.arange(3))

    trace = request_trace("made", asked, service=service, share=0.5)

    assert trace.workload.submit_seconds.tolist() == [0, 2]
    assert trace.workload.service_seconds.tolist() == [2, 0.5]
    assert (trace.workload.kind == TaskKind.INFERENCE).all()
    assert trace.workload.model.tolist() == [0, 2]
    assert trace.notes == ("made up", "assumed: a request holds 0.5 of an accelerator")


def test_azure_and_mooncake_requests_count_from_the_first(tmp_path: Path) -> None:
    (tmp_path / "azure.csv").write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:50.9951690,396,109\n2023-11-16 18:15:46.6805900,374,44\n"
    )
    (tmp_path / "moon.csv").write_text("timestamp_ms,input_length,output_length\n500,6758,500\n2500,10,20\n")

    azure, moon = read_azure(tmp_path / "azure.csv"), read_mooncake(tmp_path / "moon.csv")

    assert azure.at_seconds == pytest.approx([0, 4.314579], abs=1e-6)
    assert azure.context_tokens.tolist() == [374, 396]
    assert moon.at_seconds.tolist() == [0, 2]
    assert moon.generated_tokens.tolist() == [500, 20]


def test_a_part_of_the_requests_is_chosen_by_time() -> None:
    part = requests(11, context=1, generated=1).between(0.7, 1.0)

    assert part.at_seconds.tolist() == [7, 8, 9, 10]


def test_servegen_windows_are_sorted_by_client_and_time(tmp_path: Path) -> None:
    (tmp_path / "rates.csv").write_text("client,t_s,rate_rps,cv\n7,600,0.5,1\n2,0,1.5,2\n7,0,0.25,1\n")

    found = read_servegen(tmp_path / "rates.csv")

    assert found.client.tolist() == [2, 7, 7]
    assert found.rate_per_second.tolist() == [1.5, 0.25, 0.5]
    assert found.clients == [2, 7]
    assert found.expected() == 600 * 2.25


@pytest.mark.parametrize("variation", [0.3, 1.0, 4.0])
def test_sampled_arrivals_meet_rate_and_variation(variation: float) -> None:
    at_seconds, client = sample_arrivals(steady(2.0, variation, windows=300), seed=5)

    gaps = np.diff(at_seconds)
    assert len(at_seconds) == pytest.approx(300 * 600 * 2, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(variation, rel=0.1)
    assert (client == 3).all()


def test_rates_that_rise_are_met_window_by_window() -> None:
    rising = rates((1, 0, 1.0, 1.0), (1, 600, 10.0, 1.0), (1, 1800, 5.0, 1.0))

    at_seconds, _ = sample_arrivals(rising, seed=2)

    counts, _ = np.histogram(at_seconds, bins=[0, 600, 1200, 1800, 2400])
    assert counts == pytest.approx([600, 6000, 0, 3000], rel=0.12)


def test_a_rare_client_sends_as_often_as_its_rate_says() -> None:
    # A request in ten windows: nearly every gap outlasts its window.
    at_seconds, _ = sample_arrivals(steady(1 / 6000, 1.0, windows=20_000), seed=9)

    assert len(at_seconds) == pytest.approx(2000, rel=0.1)


def test_leaving_a_client_out_changes_no_other_and_a_scale_changes_the_number() -> None:
    both = rates((1, 0, 2.0, 1.0), (2, 0, 3.0, 1.0))
    alone = both.where(both.client == 2)

    at_both, client = sample_arrivals(both, seed=4)
    at_alone, _ = sample_arrivals(alone, seed=4)

    assert at_both[client == 2].tolist() == at_alone.tolist()
    assert len(sample_arrivals(both, seed=4, scale=0.1)[0]) < len(at_both) / 5
    assert len(sample_arrivals(both.where(both.client == 9), seed=4)[0]) == 0


@given(
    per_second=st.floats(min_value=0, max_value=2),
    variation=st.floats(min_value=0, max_value=200),
    seed=st.integers(min_value=0, max_value=1000),
)
@settings(deadline=None, max_examples=30)
def test_arrivals_ascend_within_their_windows_whatever_the_variation(
    per_second: float, variation: float, seed: int
) -> None:
    at_seconds, _ = sample_arrivals(steady(per_second, variation, windows=3), seed=seed)

    assert (np.diff(at_seconds) >= 0).all()
    assert ((at_seconds >= 0) & (at_seconds <= 3 * RATE_WINDOW_SECONDS)).all()


def test_a_stretch_of_rates_counts_from_its_start_and_the_smallest_clients_are_enough() -> None:
    found = rates((1, 600, 4.0, 1.0), (2, 0, 9.0, 1.0), (2, 600, 1.0, 1.0), (3, 600, 2.0, 1.0)).between(600, 1200)

    assert found.start_seconds.tolist() == [0, 0, 0]
    assert found.smallest(600 * 0.5).clients == [2]
    assert found.smallest(600 * 2.5).clients == [2, 3]
    assert found.smallest(600 * 99).clients == [1, 2, 3]


def test_tokens_are_drawn_from_real_requests_a_source_a_model() -> None:
    sources = [requests(5, context=100, generated=7), requests(3, context=9, generated=1)]

    drawn = with_tokens(np.arange(40.0), np.arange(40) % 4, sources, seed=1)

    even = drawn.model % 2 == 0
    assert set(zip(drawn.context_tokens[even], drawn.generated_tokens[even], strict=True)) == {(100, 7)}
    assert set(zip(drawn.context_tokens[~even], drawn.generated_tokens[~even], strict=True)) == {(9, 1)}


@pytest.mark.parametrize("sources", [[], [requests(0, context=1, generated=1)]])
def test_tokens_need_a_source_that_holds_requests(sources: list[Requests]) -> None:
    with pytest.raises(TraceError, match="each must hold a request"):
        with_tokens(np.arange(3.0), np.arange(3), sources, seed=1)
