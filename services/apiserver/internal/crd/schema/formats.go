package schema

import "k8s.io/kube-openapi/pkg/validation/strfmt"

// hasFormat reports whether a text has a format. Times in the common form have a fast path because
// the general check takes microseconds.
func hasFormat(format, text string) bool {
	if (format == "date-time" || format == "datetime") && isPlainTime(text) {
		return true
	}
	return strfmt.Default.Validates(format, text)
}

// isPlainTime reports whether a text is a time such as 2006-01-02T15:04:05Z. It returns false for
// days and times that may not exist.
func isPlainTime(s string) bool {
	const form = "0000-00-00T00:00:00Z"
	if len(s) != len(form) {
		return false
	}
	for i := range len(form) {
		if form[i] == '0' {
			if s[i] < '0' || s[i] > '9' {
				return false
			}
		} else if s[i] != form[i] {
			return false
		}
	}
	two := func(i int) int { return int(s[i]-'0')*10 + int(s[i+1]-'0') }
	month, day := two(5), two(8)
	return month >= 1 && month <= 12 && day >= 1 && day <= 28 && two(11) < 24 && two(14) < 60 && two(17) < 60
}
