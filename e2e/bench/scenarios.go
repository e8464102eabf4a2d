package main

import (
	"fmt"
	"net/http"
)

// run runs one scenario.
func (l *load) run(c *http.Client, s string) {
	switch s {
	case "seed":
		l.seed(c)
	case "idle":
		l.report("idle", l.measure(), 0, 1, nil, nil)
	case "list":
		l.simple(c, "list-rv0", 1, func(int) string { return "/api/v1/pods?resourceVersion=0" }, l.accept)
	case "list-consistent":
		l.simple(c, "list-consistent", 1, func(int) string { return "/api/v1/pods" }, l.accept)
	case "list-storm":
		l.simple(c, "list-storm", l.conc, func(int) string { return "/api/v1/pods?resourceVersion=0" }, l.accept)
	case "list-ns":
		l.simple(c, "list-ns", 4, func(i int) string {
			return fmt.Sprintf("/api/v1/namespaces/bench-%d/pods?resourceVersion=0", i%namespaces)
		}, l.accept)
	case "list-node":
		l.simple(c, "list-node", 4, func(i int) string {
			return fmt.Sprintf("/api/v1/pods?resourceVersion=0&fieldSelector=spec.nodeName%%3Dnode-%d", i%nodes)
		}, l.accept)
	case "list-label":
		l.simple(c, "list-label", 4, func(i int) string {
			return fmt.Sprintf("/api/v1/pods?resourceVersion=0&labelSelector=app%%3Dapp-%d", i%50)
		}, l.accept)
	case "list-meta":
		l.simple(c, "list-meta", 1, func(int) string { return "/api/v1/pods?resourceVersion=0" }, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	case "list-table":
		l.simple(c, "list-table", 1, func(int) string { return "/api/v1/pods?resourceVersion=0" }, "application/json;as=Table;g=meta.k8s.io;v=v1")
	case "list-proto":
		l.simple(c, "list-proto", 1, func(int) string { return "/api/v1/pods?resourceVersion=0" }, "application/vnd.kubernetes.protobuf")
	case "page":
		l.simple(c, "page-500", 1, func(int) string { return "/api/v1/pods?limit=500" }, l.accept)
	case "get":
		l.simple(c, "get", l.conc, func(i int) string {
			return fmt.Sprintf("/api/v1/namespaces/bench-%d/pods/pod-%05d", (i%l.n)%namespaces, i%l.n)
		}, l.accept)
	case "get-rv0":
		l.simple(c, "get-rv0", l.conc, func(i int) string {
			return fmt.Sprintf("/api/v1/namespaces/bench-%d/pods/pod-%05d?resourceVersion=0", (i%l.n)%namespaces, i%l.n)
		}, l.accept)
	case "patch":
		l.update(c)
	case "watch":
		l.watch(c, "watch-all", pods(), func(int) string { return "/api/v1/pods?watch=1" })
	case "watch-node":
		l.watch(c, "watch-node", pods(), func(w int) string {
			return fmt.Sprintf("/api/v1/pods?watch=1&fieldSelector=spec.nodeName%%3Dnode-%d", w%nodes)
		})
	case "crd":
		l.crds(c)
	case "custom-define":
		check(l.define(c))
	case "custom-create", "custom-patch":
		for _, side := range sides() {
			if s == "custom-create" {
				l.madeAll(c, &side, 0, l.n)
			} else {
				l.patched(c, &side)
			}
		}
	default:
		check(fmt.Errorf("no scenario %q", s))
	}
}
