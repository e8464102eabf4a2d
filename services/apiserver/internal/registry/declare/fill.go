package declare

// SetDefault sets a field that is at its zero value.
func SetDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// SetDefaultPtr sets a field that is nil. Each call allocates a new value, so that objects share no
// memory.
func SetDefaultPtr[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
