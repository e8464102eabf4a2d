// Package quantity bounds the text of resource quantities before a library parses it.
//
// A quantity is short as text but can denote a large number: the parser of k8s.io/apimachinery
// computes a power of ten for an exponent, so "1e-2147483647" occupies a processor for hours. All
// code that parses a quantity from outside calls CheckCost first. The API accepts no value that
// needs a larger exponent or more digits: values are rounded to 1n and capped at 2^63-1.
package quantity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	// MaxLength is the maximum size of the text of a quantity, in bytes.
	MaxLength = 256
	// MaxExponentDigits is the maximum number of digits in a decimal exponent, without leading
	// zeros.
	MaxExponentDigits = 3

	// suspectRun is less than the number of digits in any text longer than MaxLength.
	suspectRun = 128
)

// Parse is resource.ParseQuantity for text from outside. It calls CheckCost first.
func Parse(text string) (resource.Quantity, error) {
	if err := CheckCost(text); err != nil {
		return resource.Quantity{}, err
	}
	return resource.ParseQuantity(text)
}

// CheckCost returns an error if text is a quantity that is too expensive to parse. It accepts text
// that is not a quantity, which the parser rejects. It ignores surrounding space, because the
// decoder of quantities removes it.
func CheckCost(text string) error {
	text = strings.TrimSpace(text)
	if len(text) > MaxLength {
		return fmt.Errorf("quantity of %d bytes is longer than %d bytes", len(text), MaxLength)
	}
	// Find the digits of an exponent at the end: "1e-0045" has the digits "45".
	end := len(text)
	for end > 0 && isDigit(text[end-1]) {
		end--
	}
	digits := text[end:]
	if end > 0 && (text[end-1] == '+' || text[end-1] == '-') {
		end--
	}
	if end == 0 || text[end-1] != 'e' && text[end-1] != 'E' {
		return nil
	}
	for len(digits) > 0 && digits[0] == '0' {
		digits = digits[1:]
	}
	if len(digits) > MaxExponentDigits {
		return fmt.Errorf("exponent of quantity %q has more than %d digits", text, MaxExponentDigits)
	}
	return nil
}

// CheckJSON applies CheckCost to every string and number of a document, for JSON that is read
// outside of the decoders of requests. It returns nil for text that is not JSON.
func CheckJSON(doc []byte) error {
	if !MayBeExpensive(doc) {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	for {
		token, err := d.Token()
		if err != nil {
			return nil
		}
		switch v := token.(type) {
		case string:
			err = CheckCost(v)
		case json.Number:
			err = CheckCost(v.String())
		}
		if err != nil {
			return err
		}
	}
}

// MayBeExpensive reports whether data may contain a quantity that CheckCost rejects. It reads data
// once. It has no false negatives for quantities in data without escapes.
func MayBeExpensive(data []byte) bool {
	run := 0
	for i, c := range data {
		switch {
		case isDigit(c) || c == '.':
			run++
			if run > suspectRun {
				return true
			}
			continue
		case (c == 'e' || c == 'E') && run > 0 && hasLongExponent(data[i+1:]):
			return true
		}
		run = 0
	}
	return false
}

// hasLongExponent reports whether data, the bytes after an "e", starts with an optional sign and
// more than MaxExponentDigits digits.
func hasLongExponent(data []byte) bool {
	if len(data) > 0 && (data[0] == '+' || data[0] == '-') {
		data = data[1:]
	}
	if len(data) <= MaxExponentDigits {
		return false
	}
	for _, c := range data[:MaxExponentDigits+1] {
		if !isDigit(c) {
			return false
		}
	}
	return true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
