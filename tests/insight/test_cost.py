"""What a run cost: prices as users say them, price lists, and amounts that are right or not there."""

from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsetrain.errors import UsageError
from pulsetrain.insight.cost import Cost, cost, why_unknown
from pulsetrain.insight.prices import Price, load_prices, parse_price, price_rows
from pulsetrain.insight.projection import TrainingProgress, Use

HALF_HOUR = Use(seconds=1800, hosts=2, gpus=8, joules=7.2e6, error_joules=3.6e4)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PULSETRAIN_HOME", str(tmp_path))
    monkeypatch.delenv("PULSETRAIN_PRICES", raising=False)
    return tmp_path


def priced(spec: str, use: Use = HALF_HOUR, progress: TrainingProgress | None = None) -> Cost:
    found = cost(parse_price(spec, load_prices()), use, progress)
    assert found
    return found


# Prices


@pytest.mark.parametrize(
    ("spec", "amount", "unit", "currency"),
    [
        ("0.30/kWh", 0.30, "kWh", ""),
        ("0.30 EUR/kWh", 0.30, "kWh", "EUR"),
        (" .3 eur / kwh ", 0.30, "kWh", "EUR"),
        ("2.50/GPUh", 2.50, "GPUh", ""),
        ("2.50 USD/gpu-hour", 2.50, "GPUh", "USD"),
        ("2USD/GPU h", 2.0, "GPUh", "USD"),
        ("3.20 USD/h", 3.20, "h", "USD"),
        ("3.20 GBP/hour", 3.20, "h", "GBP"),
        ("gcp:a2-highgpu-1g@europe-west4", 3.748, "h", "USD"),
        ("gcp:n1-standard-8+v100@us-central1", 2.86, "h", "USD"),
    ],
)
def test_a_price_can_be_said_in_these_ways(spec: str, amount: float, unit: str, currency: str) -> None:
    price = parse_price(spec, load_prices())
    assert (price.amount, price.unit, price.currency) == (amount, unit, currency)


@pytest.mark.parametrize(
    "spec", ["", "cheap", "0,30/kWh", "-1/kWh", "0.30", "0.30 euros/kWh", "0.30/kW", "gcp:", "1e3/h"]
)
def test_an_invalid_price_is_an_error_that_shows_the_forms(spec: str) -> None:
    with pytest.raises(UsageError, match="invalid --price") as caught:
        parse_price(spec, load_prices())
    assert "0.30 EUR/kWh" in str(caught.value) and "gcp:MACHINE@REGION" in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("gcp:a2-highgpu-2g@us-central1", ["gcp:a2-highgpu-2g", "Did you mean gcp:a2-highgpu-1g?"]),
        ("gcp:a2-highgpu-1g@us-centrall1", ["in us-centrall1", "Did you mean us-central1?"]),
        ("gcp:a2-highgpu-1g@mars", ["Known: us-central1, europe-west4"]),
        ("lab:dgx@cellar", ["Known: gcp:g2-standard-4, gcp:a2-highgpu-1g", "[lab.on_demand]"]),
        (
            "gcp:a2-highgpu-1g@us-central1:spot",
            ["no spot price", '[gcp.spot] "a2-highgpu-1g" = { us-central1 = PRICE }'],
        ),
    ],
)
def test_an_unknown_machine_is_an_error_that_helps(spec: str, told: list[str], home: Path) -> None:
    with pytest.raises(UsageError) as caught:
        parse_price(spec, load_prices())
    assert [words for words in [*told, str(home / "prices.toml")] if words not in str(caught.value)] == []


def test_the_shipped_prices_are_dated_and_on_demand_alone() -> None:
    prices = load_prices().values()
    assert len(prices) == 16
    assert {(p.provider, p.spot, p.currency, p.dated) for p in prices} == {("gcp", False, "USD", date(2026, 8, 21))}


def test_every_listed_price_can_be_named_as_it_is_listed() -> None:
    prices = load_prices()
    for spec, per_hour, currency, dated in price_rows(prices):
        price = parse_price(spec, prices)
        assert (price.amount, price.currency, price.dated) == (per_hour, currency, dated)


def test_the_users_own_prices_win_entry_by_entry_with_their_own_date(home: Path) -> None:
    (home / "prices.toml").write_text(
        """
        currency = "EUR"
        date = 2026-11-01
        [gcp.on_demand]
        a2-highgpu-1g = { europe-west4 = 3 }
        [gcp.spot]
        a2-highgpu-1g = { europe-west4 = 1.25 }
        [lab.on_demand]
        dgx = { cellar = 9.5 }
        """
    )
    prices = load_prices()
    assert parse_price("gcp:a2-highgpu-1g@europe-west4", prices) == Price(
        amount=3.0,
        unit="h",
        currency="EUR",
        basis="a2-highgpu-1g in europe-west4, 3 EUR/h (on demand, 2026-11-01)",
        dated=date(2026, 11, 1),
    )
    spot = parse_price("gcp:a2-highgpu-1g@europe-west4:SPOT", prices)
    assert (spot.amount, spot.basis) == (1.25, "a2-highgpu-1g in europe-west4, 1.25 EUR/h (spot, 2026-11-01)")
    assert parse_price("lab:dgx@cellar", prices).amount == 9.5
    assert parse_price("gcp:a2-highgpu-1g@us-central1", prices).dated == date(2026, 8, 21)


def test_the_list_on_the_page_about_cost_can_be_used(home: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/cost.md").read_text()
    (home / "prices.toml").write_text(page.partition("```toml\n")[2].partition("```")[0])
    prices = load_prices()
    assert parse_price("gcp:a2-highgpu-1g@europe-west4:spot", prices).amount == 1.60
    assert parse_price("lab:dgx@cellar", prices).currency == "EUR"


def test_a_file_named_by_the_environment_replaces_that_in_the_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "prices.toml").write_text("this would be an error")
    (home / "team.toml").write_text('currency = "EUR"\n[lab.on_demand]\ndgx = { cellar = 9.5 }\n')
    monkeypatch.setenv("PULSETRAIN_PRICES", str(home / "team.toml"))
    price = parse_price("lab:dgx@cellar", load_prices())
    assert (price.dated, price.basis) == (None, "dgx in cellar, 9.5 EUR/h (on demand)")
    monkeypatch.setenv("PULSETRAIN_PRICES", str(home / "missing.toml"))
    with pytest.raises(UsageError, match=r"missing\.toml cannot be read"):
        load_prices()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('currency = "EUR"\n[gcp.spot\n', "line 2"),
        ("[gcp.spot]\nx = { y = 1 }", "currency"),
        ('currency = "euros"', "currency"),
        ('currency = "EUR"\ndate = "soon"', "date"),
        ('currency = "EUR"\n[gcp.spot]\nx = { y = "1.25" }', "gcp.spot.x.y: Expected `float`, got `str`"),
        ('currency = "EUR"\n[gcp.spot]\nx = { y = 0 }', "gcp.spot.x.y: Expected `float` > 0"),
        ('currency = "EUR"\n[gcp.spot]\nx = { y = nan }', "gcp.spot.x.y"),
        ('currency = "EUR"\n[gcp.spot]\nx = 1.25', "gcp.spot.x is not a machine price"),
        ('currency = "EUR"\n[gcp.reserved]\nx = { y = 1 }', "gcp.reserved.x.y is not a machine price"),
        ('currency = "EUR"\nspot = 3', "spot is not a machine price"),
        (b'currency = "\xff"', "not valid TOML"),
    ],
)
def test_a_broken_price_list_is_an_error_that_names_the_place(text: str | bytes, complaint: str, home: Path) -> None:
    (home / "prices.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError) as caught:
        load_prices()
    assert complaint in str(caught.value) and str(home / "prices.toml") in str(caught.value)


# Amounts


def test_energy_costs_by_the_kilowatt_hour_and_keeps_its_error() -> None:
    found = priced("0.30 EUR/kWh")
    assert found.amount == pytest.approx(0.60) and found.error == pytest.approx(0.003)
    assert (found.currency, found.basis, found.dated) == ("EUR", "0.30 EUR/kWh", None)


def test_gpus_cost_by_the_hour_of_each() -> None:
    found = priced("2.50 USD/GPUh")
    assert (found.amount, found.error, found.basis) == (10.0, None, "2.50 USD/GPUh, 8 GPUs")


def test_machines_cost_by_the_hour_of_each_whatever_they_used() -> None:
    found = priced("gcp:a3-highgpu-8g@us-central1", Use(seconds=1800, hosts=2))
    assert found.amount == pytest.approx(87.83)
    assert found.basis == "a3-highgpu-8g in us-central1, 87.83 USD/h (on demand, 2026-08-21), 2 machines"
    assert found.dated == date(2026, 8, 21)


@pytest.mark.parametrize(("spec", "reason"), [("0.30/kWh", "energy"), ("2.50/GPUh", "no GPU")])
def test_what_is_not_known_costs_nothing_known(spec: str, reason: str) -> None:
    price = parse_price(spec, load_prices())
    assert cost(price, Use(seconds=1800)) is None
    assert reason in why_unknown(price) and spec in why_unknown(price)


def test_no_energy_costs_nothing() -> None:
    assert priced("0.30/kWh", Use(seconds=1800, joules=0.0)).amount == 0.0


def test_steps_and_samples_carry_the_whole_amount() -> None:
    found = priced("2.50 USD/GPUh", progress=TrainingProgress(steps=100, samples=3200))
    assert (found.per_step, found.per_sample) == (0.10, 10 / 3200)
    none = priced("2.50 USD/GPUh", progress=TrainingProgress(steps=0))
    assert (none.per_step, none.per_sample, none.projected) == (None, None, None)


def test_the_end_is_foreseen_from_the_steps_that_are_left() -> None:
    resumed = TrainingProgress(steps=100, last_step=600, total_steps=1000, step_seconds=9)  # an hour to come
    assert priced("3 USD/h", progress=resumed).projected == pytest.approx(3 * 2 * 1.5)
    assert priced("2.50/GPUh", progress=resumed).projected == pytest.approx(2.5 * 8 * 1.5)
    assert priced("0.30/kWh", progress=resumed).projected == pytest.approx(0.30 * 2 * 3)


def test_energy_to_come_is_that_of_the_steps_where_it_is_known() -> None:
    progress = TrainingProgress(steps=100, last_step=100, total_steps=200, step_seconds=9, step_joules=3.6e4)
    assert priced("0.30/kWh", progress=progress).projected == pytest.approx(0.30 * (2 + 1))


@pytest.mark.parametrize(
    "progress",
    [
        TrainingProgress(steps=100, last_step=100, step_seconds=9),
        TrainingProgress(steps=100, last_step=100, total_steps=200),
        TrainingProgress(steps=100, total_steps=200, step_seconds=9),
        TrainingProgress(steps=200, last_step=200, total_steps=200, step_seconds=9),
        TrainingProgress(steps=201, last_step=201, total_steps=200, step_seconds=9),
    ],
)
def test_without_steps_to_come_nothing_is_foreseen(progress: TrainingProgress) -> None:
    assert priced("3 USD/h", progress=progress).projected is None


def test_simulated_gpus_are_priced_and_noted() -> None:
    price = parse_price("2.50/GPUh", load_prices())
    found = cost(price, HALF_HOUR, simulated=True)
    assert found and found.amount == 10.0 and "simulated" in found.notes[0]
    assert priced("2.50/GPUh").notes == []


@given(
    st.sampled_from(["0.30 EUR/kWh", "2.50 USD/GPUh", "3.20 USD/h"]),
    st.floats(1, 1e6),
    st.floats(0, 1e9),
    st.integers(1, 1000),
    st.integers(1, 1000),
    st.floats(1e-4, 1e4),
)
def test_a_run_that_continues_as_it_was_ends_at_what_was_foreseen(
    spec: str, seconds: float, joules: float, steps: int, left: int, step_seconds: float
) -> None:
    price = parse_price(spec, {})
    progress = TrainingProgress(steps=steps, last_step=steps, total_steps=steps + left, step_seconds=step_seconds)
    now = Use(seconds=seconds, gpus=2, joules=joules)
    whole = seconds + left * step_seconds
    end = Use(seconds=whole, gpus=2, joules=joules * whole / seconds)
    foreseen, became = cost(price, now, progress), cost(price, end)
    assert foreseen and became and foreseen.projected is not None
    assert foreseen.projected == pytest.approx(became.amount)
    assert foreseen.projected >= foreseen.amount
