package api

import (
	"net/url"
	"strings"
)

// maxParameters is the number of parameters from which a query is ignored, as in package net/url.
const maxParameters = 10000

// Parameter returns the first value of a query parameter, and false if there is none. It returns
// the same value as url.ParseQuery, but decodes only the parameter with this name.
func Parameter(rawQuery, name string) (value string, ok bool) {
	// A query with that many separators is longer than maxParameters, so most need not be counted.
	if len(rawQuery) > maxParameters && strings.Count(rawQuery, "&") >= maxParameters {
		return "", false
	}
	for remaining := rawQuery; remaining != ""; {
		var pair string
		pair, remaining, _ = strings.Cut(remaining, "&")
		key, text, _ := strings.Cut(pair, "=")
		if strings.ContainsAny(key, "%+") {
			decodedKey, err := url.QueryUnescape(key)
			if err != nil {
				continue
			}
			key = decodedKey
		}
		if key != name || pair == "" || strings.Contains(pair, ";") {
			continue
		}
		if v, err := url.QueryUnescape(text); err == nil {
			return v, true
		}
	}
	return "", false
}
