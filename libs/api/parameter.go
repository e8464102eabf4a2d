package api

import (
	"net/url"
	"strings"
)

// maxParameters of a query are read, of a longer one none, as package net/url has it.
const maxParameters = 10000

// Parameter is the first value of a parameter in the query of an address, as url.ParseQuery
// would have it, which reads all of a query that may be long.
func Parameter(rawQuery, name string) (value string, ok bool) {
	if len(rawQuery) > maxParameters && strings.Count(rawQuery, "&") >= maxParameters {
		return "", false
	}
	for rest := rawQuery; rest != ""; {
		var pair string
		pair, rest, _ = strings.Cut(rest, "&")
		key, text, _ := strings.Cut(pair, "=")
		if strings.ContainsAny(key, "%+") {
			k, err := url.QueryUnescape(key)
			if err != nil {
				continue
			}
			key = k
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
