package main

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"strings"
)

func (k *kindRun) get() step {
	s := step{label: "get", method: http.MethodGet, path: k.object()}
	if k.r.IntN(6) == 0 {
		s.path += pick(k.r, "-absent", "/", "/bogus", "%2F", "%20")
	}
	if k.r.IntN(3) == 0 {
		s = s.query(pick(k.r, "resourceVersion=0", "resourceVersion={rv}", "resourceVersion=x", "resourceVersion=99999999", "pretty=true", "pretty=1", "export=true", "exact=true", "resourceVersion=-1", "includeObject=None", "bogus=1", "watch=1&timeoutSeconds=1"))
	}
	return k.form(s, 1)
}

func (k *kindRun) list() step {
	s := step{label: "list", method: http.MethodGet, path: k.collection()}
	var parts []string
	if !k.namespaced {
		parts = append(parts, "fieldSelector=metadata.name%3D"+k.name)
	}
	for range k.r.IntN(4) {
		parts = append(parts, k.listParameter())
	}
	return k.form(s.query(strings.Join(parts, "&")), 2)
}

func (k *kindRun) listParameter() string {
	selector := func(list ...string) string { return url.QueryEscape(pick(k.r, list...)) }
	switch k.r.IntN(9) {
	case 0:
		return "limit=" + pick(k.r, "1", "0", "2", "500", "-1", "x", "")
	case 1:
		return "resourceVersion=" + pick(k.r, "0", "{rv}", "", "x", "-1", "1", "99999999999")
	case 2:
		return "resourceVersionMatch=" + pick(k.r, "Exact", "NotOlderThan", "Bogus", "")
	case 3:
		return "labelSelector=" + selector("a=b", "a in (b,c)", "!a", "a", "a!=b", "a notin (b)", "a==b,c", "=", "a in b", "A b", "a=b=c", "a>1", "a<x", "-a", "a/b/c=d", "a=", strings.Repeat("a", 64))
	case 4:
		return "fieldSelector=" + selector("metadata.name=x", "metadata.namespace=y", "metadata.name!=x", "spec.bogus=1", "metadata.name", "a==b=c", "status.phase=Pending", "metadata.labels=x", "=", "metadata.name=x,metadata.name=y", "spec.nodeName=", `metadata.name=a\,b`)
	case 5:
		return "continue=" + pick(k.r, "x", "", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJ4In0", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoieCJ9", "e30")
	case 6:
		return "timeoutSeconds=" + pick(k.r, "1", "5", "x", "-1", "0")
	case 7:
		return pick(k.r, "includeObject=None", "includeObject=Object", "includeObject=Metadata", "includeObject=Bogus", "pretty=true", "sendInitialEvents=true", "allowWatchBookmarks=true", "allowWatchBookmarks=x", "watch=false", "watch=0")
	}
	return pick(k.r, "limit=1&resourceVersion=0", "limit=1&continue=x&resourceVersion=1", "resourceVersionMatch=Exact&resourceVersion={rv}", "resourceVersionMatch=Exact&resourceVersion=0", "resourceVersionMatch=NotOlderThan", "resourceVersionMatch=NotOlderThan&resourceVersion=0&limit=1")
}

func (k *kindRun) watch() step {
	s := step{label: "watch", method: http.MethodGet, path: k.collection()}
	parts := []string{pick(k.r, "watch=1", "watch=true", "watch=t", "watch", "watch=yes"), "timeoutSeconds=1"}
	if !k.namespaced {
		parts = append(parts, "fieldSelector=metadata.name%3D"+k.name)
	}
	if k.r.IntN(2) == 0 {
		parts = append(parts, "resourceVersion={rv}")
	}
	for range k.r.IntN(3) {
		parts = append(parts, k.listParameter())
	}
	return k.form(s.query(strings.Join(parts, "&")), 2)
}

func (k *kindRun) odd() step {
	s := step{label: "odd request", method: pick(k.r, "HEAD", "OPTIONS", "TRACE", "FOO", "get", "POST", "PUT", "PATCH", "DELETE", "GET", "COPY"), path: pick(k.r, k.object(), k.object(), k.collection(), k.object()+"/bogus", k.object()+"/status", k.prefix()+"/"+k.resource, k.prefix()+"/watch/"+k.resource, k.prefix()+"/namespaces/{ns}/"+k.resource, k.collection()+"/", k.prefix()+"/namespaces/{ns}/"+k.resource+"/"+k.name)}
	if s.method == http.MethodDelete {
		s = s.query("dryRun=All")
	}
	if s.method == "GET" || s.method == "HEAD" {
		if !k.namespaced || !strings.Contains(s.path, "{ns}") {
			s = s.query("fieldSelector=metadata.name%3D" + k.name)
		}
	}
	if strings.Contains(s.path, "/watch/") { // for any method: kube-apiserver then watches a custom resource
		s = s.query("timeoutSeconds=1")
	}
	if s.method == "GET" || s.method == "HEAD" {
		return k.form(s, 3)
	}
	if s.method == "POST" || s.method == "PUT" || s.method == "PATCH" {
		s.text = pick(k.r, "", "{}", "null", "[]", "x", `{"kind":`, `{"apiVersion":"v1","kind":"Bogus"}`, `{"apiVersion":"bogus/v9","kind":"`+k.kind.kind+`"}`, `{"kind":"`+k.kind.kind+`"}`, `{"apiVersion":"`+k.apiVersion()+`"}`,
			`{"apiVersion":"`+k.apiVersion()+`","kind":"`+k.kind.kind+`","metadata":null}`, `{"apiVersion":"`+k.apiVersion()+`","kind":"`+k.kind.kind+`"} trailing`, "\xff\xfe", `"text"`, "7", `{"apiVersion":"v1","kind":"Status"}`, `{"apiVersion":"v1","kind":"List","items":[]}`)
		media := pick(k.r, "application/json", "application/json", "application/yaml", "application/json; charset=utf-8", "text/plain", "application/octet-stream", "bogus", "", "application/vnd.kubernetes.protobuf", "application/cbor")
		if s.method == "PATCH" {
			media = pick(k.r, mergePatch, strategicPatch, jsonPatch, applyYAML, media)
			if strings.Contains(media, "apply") {
				s = s.query("fieldManager=m")
			}
		}
		s = s.with("Content-Type", media).query(k.dry)
	}
	return k.form(s, 6)
}

func (k *kindRun) remove() step {
	s := step{label: "delete", method: http.MethodDelete, path: k.object(), encoding: jsonBody}
	switch k.r.IntN(6) {
	case 0:
		s.path += "-absent"
	case 1:
		s.path = k.collection()
		s = s.query(pick(k.r, "labelSelector=nothing%3Dmatches", "fieldSelector=metadata.name%3Dnothing", "labelSelector=%3D", "fieldSelector=spec.bogus%3D1&labelSelector=nothing"))
	}
	real := k.dry == "" && k.r.IntN(8) == 0
	if !real {
		s = s.query("dryRun=All")
	}
	if k.r.IntN(2) == 0 {
		s = s.query(pick(k.r, "gracePeriodSeconds=0", "gracePeriodSeconds=5", "gracePeriodSeconds=-1", "gracePeriodSeconds=x", "propagationPolicy=Orphan", "propagationPolicy=Foreground", "propagationPolicy=Background", "propagationPolicy=Bogus",
			"orphanDependents=true", "orphanDependents=true&propagationPolicy=Orphan", "ignoreStoreReadErrorWithClusterBreakingPotential=true"))
	}
	if k.r.IntN(2) == 0 {
		options := map[string]any{"apiVersion": pick(k.r, "v1", "v1", k.apiVersion(), "meta.k8s.io/v1", "bogus/v1"), "kind": pick(k.r, "DeleteOptions", "DeleteOptions", "DeleteOptions", k.kind.kind)}
		if !real {
			options["dryRun"] = []any{"All"}
		}
		extra := pick(k.r, map[string]any{}, map[string]any{"preconditions": map[string]any{"uid": "{uid}"}}, map[string]any{"preconditions": map[string]any{"uid": "wrong"}}, map[string]any{"preconditions": map[string]any{"resourceVersion": "1"}},
			map[string]any{"gracePeriodSeconds": json.Number(pick(k.r, "0", "-1", "5", "1.5"))}, map[string]any{"propagationPolicy": pick(k.r, "Orphan", "Bogus", "Foreground", "")}, map[string]any{"unknown": true}, map[string]any{"orphanDependents": "x"},
			map[string]any{"dryRun": []any{"Bogus"}}, map[string]any{"orphanDependents": true, "propagationPolicy": "Orphan"})
		maps.Copy(options, extra)
		s.object, s.encoding = options, k.anyEncoding()
		s.label += " " + jsonText(options)
	}
	return k.form(s, 6)
}
