package main

import (
	"net/http"
	"net/url"
	"strings"

	"binnacle/e2e/conformance/comparison"
	"binnacle/e2e/conformance/faults"
)

// pages lists a part of a collection, or continues from the last part. Parameters that do not go
// together are combined at random.
func (k *kindRun) pages() comparison.Step {
	s := comparison.Step{Label: "page", Method: http.MethodGet, Path: k.collection(), Save: map[string]string{"continue": "metadata.continue", "listed": "metadata.resourceVersion"}}
	if k.r.IntN(8) == 0 { // of the deletion of a collection; never of all objects
		s.Method, s.Save = http.MethodDelete, nil
		s = s.Query("dryRun=All&labelSelector=nothing%3Dmatches")
	}
	var parts []string
	if !k.namespaced { // objects of other scenarios would affect the parts of the collection
		parts = append(parts, "fieldSelector=metadata.name%3D"+k.name)
	}
	for _, choice := range [][]string{
		{"", "limit=1", "limit=1", "limit=2", "limit=0", "limit=1000"},
		{"", "", "continue={continue}", "continue={continue}", "continue=", "continue={continue}x"},
		{"", "", "", "resourceVersion={listed}", "resourceVersion={rv}", "resourceVersion=0", "resourceVersion="},
		{"", "", "", "resourceVersionMatch=Exact", "resourceVersionMatch=NotOlderThan", "resourceVersionMatch="},
		{"", "", "", "sendInitialEvents=true", "sendInitialEvents=false", "sendInitialEvents=x"},
		{"", "", "", "watch=1&timeoutSeconds=1", "watch=0", "watch=x&timeoutSeconds=1", "watch=true&watch=false&timeoutSeconds=1"},
		{"", "", "", "allowWatchBookmarks=true", "allowWatchBookmarks=x"},
		{"", "", "", "labelSelector=" + url.QueryEscape(faults.Pick(k.r, "a", "!a", "a in (b,c)", "a=b,c!=d", "a in ()", "a=b,,", ",", "a = b", "a===b"))},
		{"", "", "", "includeObject=None", "includeObject=Metadata", "includeObject=Object"},
		{"", "", "", "", "timeoutSeconds=1", "pretty=true", "timeout=1s", "timeout=x"},
	} {
		if part := choice[k.r.IntN(len(choice))]; part != "" && k.r.IntN(2) == 0 {
			parts = append(parts, part)
		}
	}
	return k.form(s.Query(strings.Join(parts, "&")), 3)
}
