"""What a user can say for a region."""

import subprocess
import sys

import pytest

from pulsetrain import intensity
from pulsetrain.errors import UsageError


@pytest.mark.parametrize(
    ("said", "spec", "region"),
    [
        ("uk", "uk", "Great Britain"),
        ("UK", "uk", "Great Britain"),
        ("uk:18", "uk", "Great Britain"),
        ("South England", "uk:12", "South England"),
        (" south england ", "uk:12", "South England"),
        ("uk:South England", "uk:12", "South England"),
        ("uk:13", "uk:13", "London"),
        ("uk:SW1A", "uk:SW1A", "SW1A, Great Britain"),
        ("uk:sw1a 1aa", "uk:SW1A", "SW1A, Great Britain"),
        ("uk:M11AE", "uk:M1", "M1, Great Britain"),
        ("GB", "GB", "United Kingdom"),
        ("DE", "DE", "Germany"),
        ("de", "DE", "Germany"),
        ("Germany", "DE", "Germany"),
        ("world", "WORLD", "World"),
        ("gcp:europe-west4", "gcp:europe-west4", "Google Cloud europe-west4"),
        ("250", "250", "an unspecified region"),
        ("0", "0", "an unspecified region"),
        ("electricitymaps:us-cal-ciso", "electricitymaps:US-CAL-CISO", "US-CAL-CISO (Electricity Maps)"),
        ("watttime:caiso_north", "watttime:CAISO_NORTH", "CAISO_NORTH (WattTime)"),
    ],
)
def test_a_region_is_found_by_what_people_call_it(said: str, spec: str, region: str) -> None:
    about = intensity.find(said).about
    assert (about.spec, about.region) == (spec, region)


@pytest.mark.parametrize(
    ("said", "kind", "grams"),
    [("uk", "operational", 216), ("DE", "lifecycle", 342), ("gcp:europe-west4", "operational", 209)],
)
def test_every_provider_says_what_kind_of_figures_it_has(said: str, kind: str, grams: float) -> None:
    about = intensity.find(said).about
    assert about.accounting == kind
    assert about.fixed and about.fixed.grams_per_kwh == grams


def test_shipped_averages_carry_their_year_and_source() -> None:
    assert intensity.find("DE").about.source == "average of 2024 (Ember, through co2.js, CC BY 4.0)"
    assert "2023" in intensity.find("IS").about.source
    assert "2024 (GoogleCloudPlatform/region-carbon-info" in intensity.find("gcp:us-west1").about.source


def test_no_country_is_guessed_for_a_provider_that_names_none() -> None:
    assert intensity.find("watttime:CAISO_NORTH").about.fixed is None


@pytest.mark.parametrize(
    ("said", "meant"),
    [("Londn", "London"), ("europe-west4", "gcp:europe-west4"), ("germny", "DE"), ("gcp:us-west11", "gcp:us-west1")],
)
def test_a_typing_error_is_answered_with_what_is_near(said: str, meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        intensity.find(said)
    assert f"{said!r}" in caught.value.message
    assert caught.value.hint and f"Did you mean {meant}" in caught.value.hint


@pytest.mark.parametrize(
    "said", ["", "uk:", "uk:99", "gcp:", "bogus:DE", "-3", "nan", "5000", "electricitymaps:", "QX"]
)
def test_an_unknown_region_is_refused_and_not_guessed(said: str) -> None:
    with pytest.raises(UsageError, match="unknown carbon region"):
        intensity.find(said)


def test_everything_in_the_list_can_be_said() -> None:
    choices = intensity.choices()
    assert len(choices) > 100
    for choice in choices:
        assert intensity.find(choice.spec).about
        assert choice.name and choice.what


def test_a_shipped_average_costs_no_import_of_a_web_client() -> None:
    code = "import sys; from pulsetrain import intensity; intensity.find('DE'); print('httpx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
