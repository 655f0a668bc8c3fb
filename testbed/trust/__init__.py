"""Whether a result can be believed: calibration, controls, evidence, verdict, similitude, agreement."""
