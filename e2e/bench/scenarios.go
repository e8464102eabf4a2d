package main

import (
	"fmt"
	"net/http"
)

// runScenario runs one scenario.
func (l *load) runScenario(c *http.Client, s string) {
	switch s {
	case "seed":
		l.createPods(c)
	case "idle":
		l.addResult("idle", l.readUsage(), 0, 1, nil, nil)
	case "list":
		l.measureRequests(c, "list-rv0", 1, func(int) string { return "/api/v1/pods?resourceVersion=0" }, l.accept)
	case "list-consistent":
		l.measureRequests(c, "list-consistent", 1, func(int) string { return "/api/v1/pods" }, l.accept)
	case "list-storm":
		l.measureRequests(c, "list-storm", l.concurrency, func(int) string { return "/api/v1/pods?resourceVersion=0" }, l.accept)
	case "list-ns":
		l.measureRequests(c, "list-ns", 4, func(i int) string {
			return fmt.Sprintf("/api/v1/namespaces/bench-%d/pods?resourceVersion=0", i%namespaces)
		}, l.accept)
	case "list-node":
		l.measureRequests(c, "list-node", 4, func(i int) string {
			return fmt.Sprintf("/api/v1/pods?resourceVersion=0&fieldSelector=spec.nodeName%%3Dnode-%d", i%nodes)
		}, l.accept)
	case "list-label":
		l.measureRequests(c, "list-label", 4, func(i int) string {
			return fmt.Sprintf("/api/v1/pods?resourceVersion=0&labelSelector=app%%3Dapp-%d", i%50)
		}, l.accept)
	case "list-meta":
		l.measureRequests(c, "list-meta", 1, func(int) string { return "/api/v1/pods?resourceVersion=0" },
			"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	case "list-table":
		l.measureRequests(c, "list-table", 1, func(int) string { return "/api/v1/pods?resourceVersion=0" },
			"application/json;as=Table;g=meta.k8s.io;v=v1")
	case "list-proto":
		l.measureRequests(c, "list-proto", 1, func(int) string { return "/api/v1/pods?resourceVersion=0" },
			"application/vnd.kubernetes.protobuf")
	case "page":
		l.measureRequests(c, "page-500", 1, func(int) string { return "/api/v1/pods?limit=500" }, l.accept)
	case "get":
		l.measureRequests(c, "get", l.concurrency, func(i int) string {
			return fmt.Sprintf("/api/v1/namespaces/bench-%d/pods/pod-%05d", (i%l.objectCount)%namespaces, i%l.objectCount)
		}, l.accept)
	case "get-rv0":
		l.measureRequests(c, "get-rv0", l.concurrency, func(i int) string {
			return fmt.Sprintf("/api/v1/namespaces/bench-%d/pods/pod-%05d?resourceVersion=0",
				(i%l.objectCount)%namespaces, i%l.objectCount)
		}, l.accept)
	case "patch":
		l.measurePodPatches(c)
	case "watch":
		l.measureWatches(c, "watch-all", watchedPods(), func(int) string { return "/api/v1/pods?watch=1" })
	case "watch-node":
		l.measureWatches(c, "watch-node", watchedPods(), func(w int) string {
			return fmt.Sprintf("/api/v1/pods?watch=1&fieldSelector=spec.nodeName%%3Dnode-%d", w%nodes)
		})
	case "crd":
		l.measureDefinitions(c)
	case "custom-define":
		check(l.createGadgetDefinition(c))
	case "custom-create", "custom-patch":
		for _, side := range comparedSides() {
			if s == "custom-create" {
				l.createChunk(c, &side, 0, l.objectCount)
			} else {
				l.measurePatches(c, &side)
			}
		}
	default:
		check(fmt.Errorf("no scenario %q", s))
	}
}
