package transcode

import (
	"strconv"
	"time"

	"binnacle/services/apiserver/internal/json/jsontext"
)

// appendSpecial appends a value of a type that defines its JSON form, such as a time. It returns
// false if the form cannot be written exactly.
func appendSpecial(dst []byte, fieldKind kind, data []byte) ([]byte, bool) {
	switch fieldKind {
	case timestamp, microTimestamp:
		return appendTime(dst, data, fieldKind == microTimestamp)
	case quantity:
		return appendQuantity(dst, data)
	case intOrString:
		return appendIntOrString(dst, data)
	case embedded:
		if len(data) == 0 {
			return append(dst, "null"...), true
		}
		raw, ok := onlyBytesField(data)
		if !ok {
			return dst, false
		}
		return appendEmbedded(dst, raw)
	case wrapper:
		return appendWrapped(dst, data)
	case duration:
		return appendDuration(dst, data)
	}
	return dst, false
}

// onlyBytesField returns the content of a message that consists of the bytes field 1.
func onlyBytesField(encoded []byte) ([]byte, bool) {
	if len(encoded) < 2 || encoded[0] != 1<<3|wireBytes {
		return nil, false
	}
	n, next := varint(encoded, 1)
	if next < 0 || n != uint64(len(encoded)-next) {
		return nil, false
	}
	return encoded[next:], true
}

// readNumbers reads a message that contains only numbers: the fields 1 and 2.
func readNumbers(data []byte) (one, two uint64, ok bool) {
	for i := 0; i < len(data); {
		tag := data[i]
		var number uint64
		number, i = varint(data, i+1)
		if i < 0 {
			return 0, 0, false
		}
		switch tag {
		case 1<<3 | wireVarint:
			one = number
		case 2<<3 | wireVarint:
			two = number
		default:
			return 0, 0, false
		}
	}
	return one, two, true
}

// Unix times of 0001-01-01 and 10000-01-01, UTC. Years between them have four digits. firstSecond
// is the zero time.
const (
	firstSecond = -62135596800
	endSecond   = 253402300800
)

// appendTime appends a time in the JSON form of metav1.Time (seconds) or MicroTime (microseconds).
func appendTime(dst, data []byte, micro bool) ([]byte, bool) {
	if len(data) == 0 {
		return append(dst, "null"...), true
	}
	seconds64, nanos64, ok := readNumbers(data)
	seconds := int64(seconds64)
	nanos := int32(nanos64)
	if !ok || seconds <= firstSecond || seconds >= endSecond || micro && (nanos < 0 || nanos >= 1e9) {
		return dst, false
	}
	days, secondOfDay := floorDiv(seconds, 24*60*60)
	year, month, day := dateOf(days)
	dst = append(dst, '"')
	dst = twoDigits(twoDigits(dst, year/100), year%100)
	dst = append(twoDigits(append(dst, '-'), month), '-')
	dst = append(twoDigits(dst, day), 'T')
	dst = append(twoDigits(dst, secondOfDay/3600), ':')
	dst = append(twoDigits(dst, secondOfDay/60%60), ':')
	dst = twoDigits(dst, secondOfDay%60)
	if micro {
		micros := int64(nanos) / 1000
		dst = twoDigits(twoDigits(twoDigits(append(dst, '.'), micros/10000), micros/100%100), micros%100)
	}
	return append(dst, 'Z', '"'), true
}

// twoDigits appends two digits.
func twoDigits(dst []byte, n int64) []byte {
	return append(dst, byte('0'+n/10), byte('0'+n%10))
}

// floorDiv divides by a positive b and rounds down. The remainder is not negative.
func floorDiv(a, b int64) (int64, int64) {
	q, r := a/b, a%b
	if r < 0 {
		q = q - 1
		r = r + b
	}
	return q, r
}

// dateOf returns the Gregorian date of a day counted from 1970-01-01. It counts in eras of 400
// years of 146097 days. Years start in March, so that a leap day is the last day of its year.
// 719468 is the number of days from 0000-03-01 to 1970-01-01.
func dateOf(days int64) (year, month, day int64) {
	const eraDays = 146097
	era, dayOfEra := floorDiv(days+719468, eraDays)
	yearOfEra := (dayOfEra - dayOfEra/1460 + dayOfEra/36524 - dayOfEra/(eraDays-1)) / 365
	dayOfYear := dayOfEra - (365*yearOfEra + yearOfEra/4 - yearOfEra/100)
	marchMonth := (5*dayOfYear + 2) / 153
	day = dayOfYear - (153*marchMonth+2)/5 + 1
	month = marchMonth + 3
	year = yearOfEra + era*400
	if month > 12 {
		month = month - 12
		year = year + 1
	}
	return year, month, day
}

// appendDuration appends a metav1.Duration, which the message holds in nanoseconds.
func appendDuration(dst, b []byte) ([]byte, bool) {
	ns, other, ok := readNumbers(b)
	if !ok || other != 0 {
		return dst, false
	}
	return append(append(append(dst, '"'), time.Duration(ns).String()...), '"'), true
}

// appendIntOrString appends the integer or the string of a message with the fields type=1, intVal=2
// and strVal=3.
func appendIntOrString(dst, data []byte) ([]byte, bool) {
	end := len(data)
	var str []byte
	for i := 0; i < len(data); {
		if data[i] == 3<<3|wireBytes {
			n, next := varint(data, i+1)
			if next < 0 || n != uint64(len(data)-next) {
				return dst, false
			}
			end = i
			str = data[next:]
			break
		}
		_, i = varint(data, i+1)
		if i < 0 {
			return dst, false
		}
	}
	typ, val, ok := readNumbers(data[:end])
	switch {
	case ok && typ == 0:
		return strconv.AppendInt(dst, int64(int32(val)), 10), true
	case ok && typ == 1:
		return jsontext.AppendBytes(dst, str), true
	}
	return dst, false
}

// appendWrapped appends a list of strings that has a message type. It occurs only as the value of a
// map, so an empty message is an empty list and not null.
func appendWrapped(dst, data []byte) ([]byte, bool) {
	dst = append(dst, '[')
	for i := 0; i < len(data); {
		if data[i] != 1<<3|wireBytes {
			return dst, false
		}
		length, next := varint(data, i+1)
		if next < 0 || length > uint64(len(data)-next) {
			return dst, false
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		i = next + int(length)
		dst = jsontext.AppendBytes(dst, data[next:i])
	}
	return append(dst, ']'), true
}

// appendQuantity appends a canonical quantity: no finer than thousandths, not negative and not very
// large. It returns false for any other.
func appendQuantity(dst, data []byte) ([]byte, bool) {
	if len(data) == 0 {
		return append(dst, `"0"`...), true
	}
	s, ok := onlyBytesField(data)
	if !ok || !isCanonicalQuantity(s) {
		return dst, false
	}
	return append(append(append(dst, '"'), s...), '"'), true
}

// isCanonicalQuantity reports whether a quantity is a whole number without leading zeros that a
// larger suffix cannot shorten: 100m, 64Mi and 0 are, 1000m and 064Mi are not.
func isCanonicalQuantity(data []byte) bool {
	number, i := int64(0), 0
	for i < len(data) && data[i] >= '0' && data[i] <= '9' {
		number = number*10 + int64(data[i]-'0')
		i++
		if i > 15 {
			return false
		}
	}
	if i == 0 || data[0] == '0' {
		return len(data) == 1 && i == 1
	}
	maxDigits := 0 // that are certainly exact with the suffix
	base := int64(1000)
	switch string(data[i:]) {
	case "", "m":
		maxDigits = 15
	case "k", "M":
		maxDigits = 9
	case "G":
		maxDigits = 6
	case "T":
		maxDigits = 3
	case "Ki", "Mi":
		maxDigits = 9
		base = 1024
	case "Gi":
		maxDigits = 6
		base = 1024
	case "Ti":
		maxDigits = 3
		base = 1024
	}
	return i <= maxDigits && number%base != 0
}

// appendEmbedded appends a JSON object that encoding/json would leave unchanged. It returns false
// for any other text.
func appendEmbedded(dst, data []byte) ([]byte, bool) {
	if len(data) == 0 || data[0] != '{' || !jsontext.Compact(data) {
		return dst, false
	}
	return append(dst, data...), true
}
