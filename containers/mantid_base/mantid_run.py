"""Reduces simulated neutron events with Mantid, in several processes at once: mantid_run.py PROCESSES."""

import multiprocessing
import sys
import time

ROUNDS = 20


def reduce(number: int) -> float:
    """Events to a spectrum in d-spacing, as for powder diffraction; how many seconds it took."""
    from mantid.simpleapi import ConvertUnits, CreateSampleWorkspace, Rebin, SumSpectra

    began = time.perf_counter()
    for _ in range(ROUNDS):
        events = CreateSampleWorkspace(
            WorkspaceType="Event",
            Function="Powder Diffraction",
            NumBanks=4,
            BankPixelWidth=40,
            NumEvents=200_000,
            OutputWorkspace=f"events_{number}",
        )
        spacing = ConvertUnits(InputWorkspace=events, Target="dSpacing", OutputWorkspace=f"spacing_{number}")
        binned = Rebin(InputWorkspace=spacing, Params="0.1,-0.001,10", OutputWorkspace=f"binned_{number}")
        SumSpectra(InputWorkspace=binned, OutputWorkspace=f"sum_{number}")
    return time.perf_counter() - began


if __name__ == "__main__":
    processes = int(sys.argv[1])
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        seconds = pool.map(reduce, range(processes))
    print(f"reductions per second: {processes * ROUNDS / max(seconds):.3f}")
