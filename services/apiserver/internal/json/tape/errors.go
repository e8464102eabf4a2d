package tape

import "errors"

// SyntaxError reports why and where a text is not valid JSON.
type SyntaxError struct {
	Problem string
	Offset  int // in bytes

	outOfRange bool
}

// Error implements error.
func (e *SyntaxError) Error() string { return e.Problem }

// IsOutOfRange reports whether err is the error of Parse for a number that does not fit into a float64.
// The syntax of such a document is correct.
func IsOutOfRange(err error) bool {
	syntax := new(SyntaxError)
	return errors.As(err, &syntax) && syntax.outOfRange
}
