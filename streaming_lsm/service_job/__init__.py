"""Run compactions and cleans as jobs of their own: signals, the loop of looks, messages, the jobs' command line."""
