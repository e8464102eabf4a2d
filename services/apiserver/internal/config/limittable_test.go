package config_test

import (
	"fmt"
	"strings"

	"binnacle/libs/authenticator"
	"binnacle/libs/certchain"
	"binnacle/libs/serving/conns"
	"binnacle/services/apiserver/internal/admission/webhooks"
	"binnacle/services/apiserver/internal/api/aggregation"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/codec/doccheck"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/crd/conversion"
	"binnacle/services/apiserver/internal/crd/schema"
	"binnacle/services/apiserver/internal/json/jsonpatch"
	"binnacle/services/apiserver/internal/proxy/kubeletproxy"
	"binnacle/services/apiserver/internal/proxy/responselimit"
	"binnacle/services/apiserver/internal/registry/apply"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/handlers"
	"binnacle/services/apiserver/internal/rest/patch"
	"binnacle/services/apiserver/internal/status"
)

// limitRow is a row of docs/user/limits.md.
type limitRow struct {
	// Section is the heading of the row's table.
	Section string
	// Subject is the thing whose size, number or duration is bounded.
	Subject string
	// Flag is the name of the flag that sets the bound, or "".
	Flag string
	// Limit is the value with its unit. "%s" in it stands for the default of the flag.
	Limit string
	// Effect is what happens to a request that exceeds the bound.
	Effect string
	// Reason is what the bound protects.
	Reason string
}

// limitTable returns the rows of docs/user/limits.md, section by section.
func limitTable(b *config.Limits) (all []limitRow) {
	for _, section := range []struct {
		name string
		rows []limitRow
	}{
		{name: "Requests", rows: requestLimits(b)},
		{name: "Connections", rows: connectionLimits(b)},
		{name: "Webhooks and other servers", rows: serverLimits(b)},
		{name: "Custom resources and policies", rows: customLimits()},
		{name: "Audit and caches", rows: auditLimits(b)},
	} {
		for _, row := range section.rows {
			row.Section = section.name
			all = append(all, row)
		}
	}
	return all
}

// requestLimits returns the rows of the section Requests.
func requestLimits(b *config.Limits) []limitRow {
	bounds := &b.Requests
	return []limitRow{
		{Subject: "duration", Flag: "request-timeout", Limit: "%s", Effect: "504", Reason: "requests that never end"},
		{Subject: "reads in flight", Flag: "max-requests-inflight", Limit: "%s", Effect: "waits, then 429", Reason: "CPU and memory"},
		{
			Subject: "writes in flight",
			Flag:    "max-mutating-requests-inflight",
			Limit:   "%s",
			Effect:  "waits, then 429",
			Reason:  "CPU and memory",
		},
		{Subject: "body", Limit: formatBytes(request.MaxBody), Effect: "413", Reason: "memory; etcd rejects larger values"},
		{
			Subject: "pause in a body",
			Flag:    "stalled-client-timeout",
			Limit:   "%s",
			Effect:  "408",
			Reason:  "memory of bodies that never arrive",
		},
		{
			Subject: "headers",
			Limit:   fmt.Sprintf("%s, %s fields", formatBytes(conns.DefaultMaxBytes), formatCount(conns.MaxHeaderLines)),
			Effect:  "431",
			Reason:  "memory before authentication",
		},
		{
			Subject: "`Accept`, `Accept-Encoding` and `Content-Type` together",
			Limit:   formatBytes(bounds.NegotiationFields),
			Effect:  "431",
			Reason:  "CPU before authentication",
		},
		{Subject: "bearer token", Limit: formatBytes(authenticator.MaxTokenBytes), Effect: "401", Reason: "CPU before authentication"},
		{
			Subject: "headers of 16 KiB and more of all requests",
			Limit:   formatBytes(conns.MaxReservedHeaders) + "; half of it per address",
			Effect:  "431, 429",
			Reason:  "memory before authentication",
		},
		{
			Subject: "bodies of a priority level",
			Limit:   fmt.Sprintf("%s per CPU, at least %s", formatBytes(bounds.BodyBytesPerCPU), formatBytes(bounds.MinBodyBytes)),
			Effect:  "waits, then 429",
			Reason:  "memory",
		},
		{
			Subject: "bodies of a principal that wait",
			Limit:   formatCount(bounds.WaitingBodies),
			Effect:  "429",
			Reason:  "memory of waiting requests",
		},
		{
			Subject: "large request bodies being processed (from 64 KiB or 512 values)",
			Limit:   formatBytes(bounds.LargeBytesPerCPU) + " × (CPUs − 1)",
			Effect:  "waits, then 429",
			Reason:  "memory: a decoded object is many times larger than its JSON; CPU of other requests",
		},
		{
			Subject: "large bodies of requests that wait for a webhook or etcd",
			Limit:   formatBytes(bounds.SuspendedBytes),
			Effect:  "counted as being processed",
			Reason:  "memory while a webhook does not respond",
		},
		{
			Subject: "responses whose client does not read",
			Limit:   formatCount(bounds.Stalled),
			Effect:  "keeps its API Priority and Fairness seats",
			Reason:  "memory of the buffers",
		},
		{
			Subject: "document",
			Limit: fmt.Sprintf("%s levels, %s lists and objects, %s values, field names of %s",
				formatCount(doccheck.MaxDepth), formatCount(doccheck.MaxContainers), formatCount(doccheck.MaxValues), formatBytes(doccheck.MaxKey)),
			Effect: "400",
			Reason: "memory and CPU of `{},{},…`",
		},
		{
			Subject: "YAML with its aliases",
			Limit:   formatBytes(doccheck.MaxExpanded),
			Effect:  "400",
			Reason:  "memory of repeated aliases",
		},
		{
			Subject: "patch",
			Limit: fmt.Sprintf("%s operations, %s of copies, %s comparisons",
				formatCount(patch.MaxOperations), formatBytes(jsonpatch.MaxCopies), formatCount(patch.MaxCompared)),
			Effect: "413, 422",
			Reason: "memory and CPU of repeated copies",
		},
		{
			Subject: "objects with `managedFields`",
			Limit:   formatCount(apply.MaxMembers) + " members of lists",
			Effect:  "413 for an apply",
			Reason:  "CPU of the comparison of field owners",
		},
		{
			Subject: "label and field selectors",
			Limit:   formatCount(requestinfo.MaxRequirements) + " requirements",
			Effect:  "400",
			Reason:  "CPU for each object of a list",
		},
		{
			Subject: "large selectors of watches (from about 1 KiB)",
			Limit:   formatBytes(handlers.MaxSelectorBytes),
			Effect:  "429",
			Reason:  "memory of selectors that watches hold",
		},
		{
			Subject: "errors of an object",
			Limit: fmt.Sprintf("%s, %s causes, %s of each value", formatBytes(status.MaxMessage),
				formatCount(status.MaxCauses), formatBytes(status.MaxValue)),
			Effect: "cut, with a note",
			Reason: "CPU of responses that are larger than the request",
		},
	}
}

// connectionLimits returns the rows of the section Connections.
func connectionLimits(limits *config.Limits) []limitRow {
	return []limitRow{
		{
			Subject: "HTTP/2 streams of a connection",
			Flag:    "http2-max-streams-per-connection",
			Limit:   "%s",
			Effect:  "wait",
			Reason:  "memory",
		},
		{
			Subject: "HTTP/2 resets of an address in a second",
			Flag:    "http2-max-resets-per-address",
			Limit:   "%s",
			Effect:  "the connection is read more slowly",
			Reason:  "CPU of requests that are canceled immediately",
		},
		{
			Subject: "logs, exec, port-forward and proxies",
			Limit:   fmt.Sprintf("a quarter of the open file limit, from %s to %s", formatCount(limits.MinProxied), formatCount(limits.MaxProxied)),
			Effect:  "429",
			Reason:  "open files: each has two connections",
		},
		{
			Subject: "proxied HTML pages whose links are rewritten",
			Limit:   formatCount(limits.MaxRewrittenPages) + " at a time; half of them per principal",
			Effect:  "returned without rewritten links",
			Reason:  "memory",
		},
		{
			Subject: "certificates that a client presents",
			Limit:   formatCount(certchain.MaxCertificates),
			Effect:  "401",
			Reason:  "CPU before authentication",
		},
		{
			Subject: "WebSocket frame of exec and attach",
			Limit:   formatBytes(kubeletproxy.MaxFrame),
			Effect:  "the connection is closed",
			Reason:  "memory",
		},
		{
			Subject: "SPDY frame of a kubelet, if exec or attach uses WebSocket",
			Limit:   formatBytes(kubeletproxy.MaxKubeletFrame),
			Effect:  "the connection is closed",
			Reason:  "memory for slow clients",
		},
	}
}

// serverLimits returns the rows of the section Webhooks and other servers.
func serverLimits(limits *config.Limits) []limitRow {
	return []limitRow{
		{
			Subject: "response of an admission webhook",
			Limit:   fmt.Sprintf("%s, %s values", formatBytes(webhooks.MaxResponse), formatCount(webhooks.MaxValues)),
			Effect:  "`failurePolicy`",
			Reason:  "memory",
		},
		{
			Subject: "response of a conversion webhook",
			Limit:   formatBytes(conversion.MaxResponse) + "; four times the request and 1 MiB per object",
			Effect:  "500",
			Reason:  "memory",
		},
		{
			Subject: "head of a response",
			Limit:   formatBytes(responselimit.MaxHead),
			Effect:  "`failurePolicy`, 500 or 503",
			Reason:  "memory and CPU of many short fields",
		},
		{
			Subject: "document of an extension server",
			Limit:   formatBytes(aggregation.MaxDiscovery) + "; OpenAPI v2 " + formatBytes(aggregation.MaxOpenAPI),
			Effect:  "the server is shown as stale",
			Reason:  "memory: all clients receive the resources",
		},
		{
			Subject: "webhook responses of more than 1 MiB",
			Limit:   formatCount(limits.MaxLargeWebhookResponses) + " at a time",
			Effect:  "wait",
			Reason:  "memory",
		},
		{
			Subject: "objects in concurrent conversion requests",
			Limit:   formatBytes(limits.Conversions.Stored) + "; half of it per principal",
			Effect:  "wait",
			Reason:  "memory while a webhook does not respond",
		},
		{
			Subject: "converted objects of responses that are written",
			Limit:   formatBytes(limits.Conversions.MaxDocuments) + ", at most an eighth of it counts for a response; half of it per principal",
			Effect:  "wait",
			Reason:  "memory of slow clients",
		},
		{
			Subject: "token reviews in progress",
			Limit:   formatCount(limits.MaxConcurrentTokenReviews),
			Effect:  "wait, then 429",
			Reason:  "memory of requests while the service does not respond",
		},
		{
			Subject: "requests waiting for an authorization webhook",
			Limit:   formatCount(limits.MaxQueuedAuthorizations),
			Effect:  "wait, then 429",
			Reason:  "requests of other users while the service does not respond",
		},
		{
			Subject: "requests waiting for an extension server",
			Limit:   "a quarter of the in-flight limits, half of it per user",
			Effect:  "429",
			Reason:  "requests to other servers while one does not respond",
		},
		{
			Subject: "checks of extension servers",
			Limit:   formatCount(limits.MaxConcurrentServerChecks) + " at a time",
			Effect:  "wait",
			Reason:  "connections",
		},
	}
}

// customLimits returns the rows of the section Custom resources and policies.
func customLimits() []limitRow {
	return []limitRow{
		{
			Subject: "custom resource with its defaults",
			Limit:   formatBytes(schema.MaxNormalized),
			Effect:  "400",
			Reason:  "memory of defaults in many items",
		},
		{
			Subject: "regular expressions of a schema",
			Limit:   formatCount(schema.MaxMatched) + " bytes times instructions per request",
			Effect:  "422",
			Reason:  "CPU of nested repetitions",
		},
		{
			Subject: "regular expressions of a CEL expression",
			Limit:   "about 64,000,000 bytes times instructions per evaluation",
			Effect:  "error of the expression",
			Reason:  "CPU of nested repetitions",
		},
		{
			Subject: "operators of a CEL expression",
			Limit:   "about 500",
			Effect:  "422",
			Reason:  "CPU of the type checker, which is quadratic",
		},
	}
}

// auditLimits returns the rows of the section Audit and caches.
func auditLimits(limits *config.Limits) []limitRow {
	return []limitRow{
		{
			Subject: "object in an audit event",
			Limit:   formatBytes(limits.MaxAuditObjectBytes),
			Effect:  "omitted from the event",
			Reason:  "memory",
		},
		{
			Subject: "objects of all requests in progress in audit events",
			Limit:   formatBytes(limits.MaxAuditObjectsBytes),
			Effect:  "omitted from the events",
			Reason:  "memory",
		},
		{
			Subject: "events that wait for an audit backend",
			Limit:   formatBytes(limits.MaxAuditQueueBytes),
			Effect:  "events are dropped and counted",
			Reason:  "memory while the backend does not respond",
		},
		{
			Subject: "batches that an audit webhook receives at a time",
			Limit:   formatCount(limits.MaxConcurrentAuditPosts),
			Effect:  "wait",
			Reason:  "connections",
		},
		{
			Subject: "all caches",
			Flag:    "cache-memory",
			Limit:   "a quarter of `GOMEMLIMIT`, or 192 MiB",
			Effect:  "evicted",
			Reason:  "memory",
		},
		{
			Subject: "watch history",
			Flag:    "watch-history-memory",
			Limit:   "two thirds of `--cache-memory`",
			Effect:  "older watches get 410",
			Reason:  "memory",
		},
		{
			Subject: "decoded quotas, limit ranges",
			Limit:   fmt.Sprintf("%s objects, %s of each", formatCount(limits.Cached.Objects), formatBytes(limits.Cached.Bytes)),
			Effect:  "decoded on each use",
			Reason:  "memory",
		},
	}
}

// formatBytes formats a number of bytes: "8 MiB", "64 KiB", "1,000 bytes".
func formatBytes[T int | int64](n T) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return formatCount(int(n)) + " bytes"
}

// formatCount formats a number with commas: "4,096".
func formatCount(count int) string {
	digits := fmt.Sprint(count)
	var out strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			out.WriteByte(',')
		}
		out.WriteRune(d)
	}
	return out.String()
}
