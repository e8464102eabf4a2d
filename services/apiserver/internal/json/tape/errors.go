package tape

import (
	"encoding/json"
	"errors"
)

// errInvalid reports that the text is not JSON. Parse replaces it by the error of encoding/json.
var errInvalid = errors.New("invalid JSON")

// syntaxError returns the error of encoding/json for a text that is not JSON, which states the
// problem and its position.
func syntaxError(raw []byte) error {
	var ignored json.RawMessage
	if err := json.Unmarshal(raw, &ignored); err != nil {
		return err
	}
	return errInvalid
}

// rangeError is the error for a number that does not fit into a float64.
type rangeError struct{ number string }

func (e *rangeError) Error() string {
	return "json: cannot unmarshal number " + e.number + " into Go value of type float64"
}

// IsOutOfRange reports whether err is the error of Parse for a number that does not fit into a
// float64. The syntax of such a document is correct.
func IsOutOfRange(err error) bool {
	outOfRange := new(rangeError)
	return errors.As(err, &outOfRange)
}
