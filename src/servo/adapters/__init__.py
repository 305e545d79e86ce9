"""What touches the world: siblings of one shape, known only to servo.wiring."""
