package main

import (
	"fmt"
	"net/http"
)

// Media types of lists.
const (
	metadataListMedia = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	tableMedia        = "application/json;as=Table;g=meta.k8s.io;v=v1"
	protobufMedia     = "application/vnd.kubernetes.protobuf"
)

// runScenario runs the scenario with a name. It exits if there is none.
func (l *load) runScenario(client *http.Client, name string) {
	cachedPods := func(int) string { return "/api/v1/pods?resourceVersion=0" }
	pod := func(i int) string { return watchedPods().path(i % l.objectCount) }
	switch name {
	case "seed":
		l.createPods(client)
	case "idle":
		l.addResult("idle", l.readUsage(), 0, 1, nil, nil)
	case "list":
		l.measureRequests(client, "list-rv0", 1, cachedPods, l.accept)
	case "list-consistent":
		l.measureRequests(client, "list-consistent", 1, func(int) string { return "/api/v1/pods" }, l.accept)
	case "list-storm":
		l.measureRequests(client, "list-storm", l.concurrency, cachedPods, l.accept)
	case "list-ns":
		l.measureRequests(client, "list-ns", 4, func(i int) string {
			return fmt.Sprintf("/api/v1/namespaces/bench-%d/pods?resourceVersion=0", i%namespaces)
		}, l.accept)
	case "list-node":
		l.measureRequests(client, "list-node", 4, func(i int) string {
			return fmt.Sprintf("/api/v1/pods?resourceVersion=0&fieldSelector=spec.nodeName%%3Dnode-%d", i%nodes)
		}, l.accept)
	case "list-label":
		l.measureRequests(client, "list-label", 4, func(i int) string {
			return fmt.Sprintf("/api/v1/pods?resourceVersion=0&labelSelector=app%%3Dapp-%d", i%50)
		}, l.accept)
	case "list-meta":
		l.measureRequests(client, "list-meta", 1, cachedPods, metadataListMedia)
	case "list-table":
		l.measureRequests(client, "list-table", 1, cachedPods, tableMedia)
	case "list-proto":
		l.measureRequests(client, "list-proto", 1, cachedPods, protobufMedia)
	case "page":
		l.measureRequests(client, "page-500", 1, func(int) string { return "/api/v1/pods?limit=500" }, l.accept)
	case "get":
		l.measureRequests(client, "get", l.concurrency, pod, l.accept)
	case "get-rv0":
		l.measureRequests(client, "get-rv0", l.concurrency, func(i int) string { return pod(i) + "?resourceVersion=0" }, l.accept)
	case "patch":
		l.measurePodPatches(client)
	case "watch":
		l.measureWatches(client, "watch-all", watchedPods(), func(int) string { return "/api/v1/pods?watch=1" })
	case "watch-node":
		l.measureWatches(client, "watch-node", watchedPods(), func(w int) string {
			return fmt.Sprintf("/api/v1/pods?watch=1&fieldSelector=spec.nodeName%%3Dnode-%d", w%nodes)
		})
	case "crd":
		l.measureDefinitions(client)
	case "custom-define":
		check(l.createGadgetDefinition(client))
	case "custom-create", "custom-patch":
		for _, side := range comparedSides() {
			if name == "custom-create" {
				l.createChunk(client, &side, 0, l.objectCount)
			} else {
				l.measurePatches(client, &side)
			}
		}
	default:
		check(fmt.Errorf("no scenario %q", name))
	}
}
