"""What pulsetrain judges by: rules declared once as data, the thresholds they compare with, and what they find."""
