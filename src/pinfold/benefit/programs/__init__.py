"""The programs that run as containers: what is measured, and the neighbours. Each prints one line of JSON.

Started as `python -m pinfold.benefit.programs.NAME`; they import almost nothing, so that they start fast.
"""
