package main

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"binnacle/e2e/conformance/comparison"
	"binnacle/e2e/conformance/faults"
)

func (k *kindRun) get() comparison.Step {
	s := comparison.Step{Label: "get", Method: http.MethodGet, Path: k.object()}
	if k.r.IntN(6) == 0 {
		s.Path += faults.Pick(k.r, "-absent", "/", "/bogus", "%2F", "%20")
	}
	if k.r.IntN(3) == 0 {
		s = s.Query(faults.Pick(k.r, "resourceVersion=0", "resourceVersion={rv}", "resourceVersion=x", "resourceVersion=99999999", "pretty=true", "pretty=1", "export=true", "exact=true", "resourceVersion=-1", "includeObject=None", "bogus=1", "watch=1&timeoutSeconds=1"))
	}
	return k.form(s, 1)
}

func (k *kindRun) list() comparison.Step {
	s := comparison.Step{Label: "list", Method: http.MethodGet, Path: k.collection()}
	var parts []string
	if !k.namespaced {
		parts = append(parts, "fieldSelector=metadata.name%3D"+k.name)
	}
	for range k.r.IntN(4) {
		parts = append(parts, k.listParameter())
	}
	return k.form(s.Query(strings.Join(parts, "&")), 2)
}

func (k *kindRun) listParameter() string {
	selector := func(list ...string) string { return url.QueryEscape(faults.Pick(k.r, list...)) }
	switch k.r.IntN(9) {
	case 0:
		return "limit=" + faults.Pick(k.r, "1", "0", "2", "500", "-1", "x", "")
	case 1:
		return "resourceVersion=" + faults.Pick(k.r, "0", "{rv}", "", "x", "-1", "1", "99999999999")
	case 2:
		return "resourceVersionMatch=" + faults.Pick(k.r, "Exact", "NotOlderThan", "Bogus", "")
	case 3:
		return "labelSelector=" + selector("a=b", "a in (b,c)", "!a", "a", "a!=b", "a notin (b)", "a==b,c", "=", "a in b", "A b", "a=b=c", "a>1", "a<x", "-a", "a/b/c=d", "a=", strings.Repeat("a", 64))
	case 4:
		return "fieldSelector=" + selector("metadata.name=x", "metadata.namespace=y", "metadata.name!=x", "spec.bogus=1", "metadata.name", "a==b=c", "status.phase=Pending", "metadata.labels=x", "=", "metadata.name=x,metadata.name=y", "spec.nodeName=", `metadata.name=a\,b`)
	case 5:
		return "continue=" + faults.Pick(k.r, "x", "", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJ4In0", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoieCJ9", "e30")
	case 6:
		return "timeoutSeconds=" + faults.Pick(k.r, "1", "5", "x", "-1", "0")
	case 7:
		return faults.Pick(k.r, "includeObject=None", "includeObject=Object", "includeObject=Metadata", "includeObject=Bogus", "pretty=true", "sendInitialEvents=true", "allowWatchBookmarks=true", "allowWatchBookmarks=x", "watch=false", "watch=0")
	}
	return faults.Pick(k.r, "limit=1&resourceVersion=0", "limit=1&continue=x&resourceVersion=1", "resourceVersionMatch=Exact&resourceVersion={rv}", "resourceVersionMatch=Exact&resourceVersion=0", "resourceVersionMatch=NotOlderThan", "resourceVersionMatch=NotOlderThan&resourceVersion=0&limit=1")
}

func (k *kindRun) watch() comparison.Step {
	path := faults.Pick(k.r, k.collection(), k.collection(), k.collection(), k.object(), strings.Replace(k.object(), k.prefix(), k.prefix()+"/watch", 1), strings.Replace(k.collection(), k.prefix(), k.prefix()+"/watch", 1))
	s := comparison.Step{Label: "watch", Method: http.MethodGet, Path: path}
	parts := []string{faults.Pick(k.r, "watch=1", "watch=true", "watch=t", "watch", "watch=yes"), "timeoutSeconds=1"}
	if !k.namespaced {
		parts = append(parts, "fieldSelector=metadata.name%3D"+k.name)
	}
	if k.r.IntN(2) == 0 {
		parts = append(parts, "resourceVersion={rv}")
	}
	for range k.r.IntN(3) {
		parts = append(parts, k.listParameter())
	}
	return k.form(s.Query(strings.Join(parts, "&")), 2)
}

// oddSubresource returns the path of a subresource, of an object that may be absent.
func (k *kindRun) oddSubresource() string {
	if len(k.subresources) == 0 {
		return k.object() + "/" + faults.Pick(k.r, "scale", "exec", "log", "proxy", "binding", "finalize", "token")
	}
	path := k.object() + faults.Pick(k.r, "", "", "-absent") + "/" + k.subresources[k.r.IntN(len(k.subresources))].name
	if k.custom { // kube-apiserver ignores the rest of the path
		return path
	}
	return path + faults.Pick(k.r, "", "", "", "", "/", "/x")
}

func (k *kindRun) odd() comparison.Step {
	s := comparison.Step{Label: "odd request", Method: faults.Pick(k.r, "HEAD", "OPTIONS", "TRACE", "FOO", "get", "POST", "PUT", "PATCH", "DELETE", "GET", "COPY"), Path: faults.Pick(k.r, k.oddSubresource(), k.oddSubresource(), k.object(), k.object(), k.collection(), k.object()+"/bogus", k.object()+"/status", k.prefix()+"/"+k.resource, k.prefix()+"/watch/"+k.resource, k.prefix()+"/namespaces/{ns}/"+k.resource, k.collection()+"/", k.prefix()+"/namespaces/{ns}/"+k.resource+"/"+k.name)}
	if k.custom && strings.Contains(s.Path, "/watch/") { // kube-apiserver watches for any method
		s.Method = http.MethodGet
	}
	if s.Method == http.MethodDelete {
		s = s.Query("dryRun=All")
		if !k.namespaced { // the objects of other scenarios change
			s = s.Query("labelSelector=nothing%3Dmatches")
		}
	}
	if s.Method == "GET" || s.Method == "HEAD" {
		if !k.namespaced || !strings.Contains(s.Path, "{ns}") {
			s = s.Query("fieldSelector=metadata.name%3D" + k.name)
		}
	}
	if strings.Contains(s.Path, "/watch/") {
		s = s.Query("timeoutSeconds=1")
	}
	if s.Method == "GET" || s.Method == "HEAD" {
		return k.form(s, 3)
	}
	if s.Method == "POST" || s.Method == "PUT" || s.Method == "PATCH" {
		s.Text = faults.Pick(k.r, "", "{}", "null", "[]", "x", `{"kind":`, `{"apiVersion":"v1","kind":"Bogus"}`, `{"apiVersion":"bogus/v9","kind":"`+k.kind.kind+`"}`, `{"kind":"`+k.kind.kind+`"}`, `{"apiVersion":"`+k.apiVersion()+`"}`,
			`{"apiVersion":"`+k.apiVersion()+`","kind":"`+k.kind.kind+`","metadata":null}`, `{"apiVersion":"`+k.apiVersion()+`","kind":"`+k.kind.kind+`"} trailing`, "\xff\xfe", `"text"`, "7", `{"apiVersion":"v1","kind":"Status"}`, `{"apiVersion":"v1","kind":"List","items":[]}`)
		media := faults.Pick(k.r, "application/json", "application/json", "application/yaml", "application/json; charset=utf-8", "text/plain", "application/octet-stream", "bogus", "", "application/vnd.kubernetes.protobuf", "application/cbor")
		if s.Method == "PATCH" {
			media = faults.Pick(k.r, mergePatch, strategicPatch, jsonPatch, applyYAML, media)
			if strings.Contains(media, "apply") {
				s = s.Query("fieldManager=m")
			}
		}
		s = s.With("Content-Type", media).Query(k.dry)
	}
	return k.form(s, 6)
}

func (k *kindRun) remove() comparison.Step {
	s := comparison.Step{Label: "delete", Method: http.MethodDelete, Path: k.object(), Encoding: comparison.JSONBody}
	switch k.r.IntN(6) {
	case 0:
		s.Path += "-absent"
	case 1:
		s.Path = k.collection()
		s = s.Query(faults.Pick(k.r, "labelSelector=nothing%3Dmatches", "fieldSelector=metadata.name%3Dnothing", "labelSelector=%3D", "fieldSelector=spec.bogus%3D1&labelSelector=nothing"))
	}
	real := k.dry == "" && k.r.IntN(8) == 0
	if !real {
		s = s.Query("dryRun=All")
	}
	if k.r.IntN(2) == 0 {
		s = s.Query(faults.Pick(k.r, "gracePeriodSeconds=0", "gracePeriodSeconds=5", "gracePeriodSeconds=-1", "gracePeriodSeconds=x", "propagationPolicy=Orphan", "propagationPolicy=Foreground", "propagationPolicy=Background", "propagationPolicy=Bogus",
			"orphanDependents=true", "orphanDependents=true&propagationPolicy=Orphan", "ignoreStoreReadErrorWithClusterBreakingPotential=true"))
	}
	if k.r.IntN(2) == 0 {
		options := map[string]any{"apiVersion": faults.Pick(k.r, "v1", "v1", k.apiVersion(), "meta.k8s.io/v1", "bogus/v1"), "kind": faults.Pick(k.r, "DeleteOptions", "DeleteOptions", "DeleteOptions", k.kind.kind)}
		if !real {
			options["dryRun"] = []any{"All"}
		}
		extra := faults.Pick(k.r, map[string]any{}, map[string]any{"preconditions": map[string]any{"uid": "{uid}"}}, map[string]any{"preconditions": map[string]any{"uid": "wrong"}}, map[string]any{"preconditions": map[string]any{"resourceVersion": "1"}},
			map[string]any{"gracePeriodSeconds": json.Number(faults.Pick(k.r, "0", "-1", "5", "1.5"))}, map[string]any{"propagationPolicy": faults.Pick(k.r, "Orphan", "Bogus", "Foreground", "")}, map[string]any{"unknown": true}, map[string]any{"orphanDependents": "x"},
			map[string]any{"dryRun": []any{"Bogus"}}, map[string]any{"orphanDependents": true, "propagationPolicy": "Orphan"})
		maps.Copy(options, extra)
		s.Object, s.Encoding = options, k.anyEncoding()
		s.Label += " " + comparison.JSONText(options)
	}
	return k.form(s, 6)
}
