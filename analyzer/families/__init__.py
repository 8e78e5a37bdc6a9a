"""Judgement that several detectors share, and single cases of what one detector finds."""
