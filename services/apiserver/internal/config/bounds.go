package config

import (
	"fmt"
	"strings"

	"binnacle/libs/authenticator"
	"binnacle/libs/certchain"
	"binnacle/libs/serving/conns"
	"binnacle/services/apiserver/internal/admission/webhooks"
	"binnacle/services/apiserver/internal/api/aggregation"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/codec/doccheck"
	"binnacle/services/apiserver/internal/crd/conversion"
	"binnacle/services/apiserver/internal/crd/schema"
	"binnacle/services/apiserver/internal/json/jsonpatch"
	"binnacle/services/apiserver/internal/proxy/kubeletproxy"
	"binnacle/services/apiserver/internal/proxy/responselimit"
	"binnacle/services/apiserver/internal/registry/apply"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/handlers"
	"binnacle/services/apiserver/internal/rest/patch"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/server/overload"
)

// Limits are the limits that clients share. Package build passes each one to the
// constructor that needs it. LimitTable describes them, with the bounds of a single
// document, which are constants of the packages that read it.
type Limits struct {
	Requests overload.Bounds
	// MaxConcurrentTokenReviews is the number of bearer tokens that another server reviews at a time.
	MaxConcurrentTokenReviews int
	// MaxQueuedAuthorizations is the number of requests that wait for one authorization webhook.
	MaxQueuedAuthorizations int
	// MaxLargeWebhookResponses is the number of responses of more than 1 MiB that are read at a time, from
	// admission webhooks and from conversion webhooks.
	MaxLargeWebhookResponses int
	// Conversions bounds the objects that conversion webhooks convert, and the results that responses
	// hold.
	Conversions responsewriters.ConversionBounds
	// MinProxied and MaxProxied bound the number of proxied requests, which otherwise is a quarter
	// of the open file limit: each has two connections.
	MinProxied, MaxProxied int
	// MaxConcurrentServerChecks is the number of extension servers that are checked at a time.
	MaxConcurrentServerChecks int
	// MaxRewrittenPages is the number of proxied HTML pages whose links are rewritten
	// at a time, of at most 1 MiB each.
	MaxRewrittenPages int
	// MaxAuditObjectBytes is the maximum size in bytes of an object in an audit event, MaxAuditObjectsBytes that of
	// all objects that wait for the ends of their requests.
	MaxAuditObjectBytes, MaxAuditObjectsBytes int64
	// MaxAuditQueueBytes is the maximum size in bytes of events that wait for an audit backend, MaxConcurrentAuditPosts the
	// number of batches that an audit webhook receives at a time.
	MaxAuditQueueBytes      int64
	MaxConcurrentAuditPosts int
	// Cached bounds the decoded objects of a kind that every write in a namespace reads.
	Cached lister.Bounds
}

func newBounds() Limits {
	return Limits{
		Requests: overload.Bounds{
			BodyBytesPerCPU:   8 << 20,
			MinBodyBytes:      32 << 20,
			LargeBytesPerCPU:  3 << 20,
			SuspendedBytes:    32 << 20,
			WaitingBodies:     1000,
			Stalled:           1000,
			NegotiationFields: 8 << 10,
		},
		MaxConcurrentTokenReviews: 1000,
		MaxQueuedAuthorizations:   400,
		MaxLargeWebhookResponses:  8,
		Conversions:               responsewriters.ConversionBounds{Stored: 32 << 20, MaxDocuments: 128 << 20},
		MinProxied:                100,
		MaxProxied:                2000,
		MaxConcurrentServerChecks: 16,
		MaxRewrittenPages:         16,
		MaxAuditObjectBytes:       10 << 20,
		MaxAuditObjectsBytes:      128 << 20,
		MaxAuditQueueBytes:        64 << 20,
		MaxConcurrentAuditPosts:   8,
		Cached:                    lister.Bounds{Objects: 4096, Bytes: 2 << 20},
	}
}

// LimitRow is a row of docs/user/limits.md.
type LimitRow struct {
	// Section is the heading of the row's table.
	Section string
	// Subject is the thing whose size, number or duration is bounded.
	Subject string
	// Flag is the flag that sets the bound, if any. Limit is the value, with
	// its unit. A %s in it is the default of the flag.
	Flag, Limit string
	// Effect is what happens to a request that exceeds the bound.
	Effect string
	// Reason is what the bound protects.
	Reason string
}

// Sections of the bounds.
const (
	requestBounds    = "Requests"
	connectionBounds = "Connections"
	serverBounds     = "Webhooks and other servers"
	customBounds     = "Custom resources and policies"
	auditBounds      = "Audit and caches"
)

// LimitTable returns the bounds of the service.
func (b *Limits) LimitTable() []LimitRow {
	r := &b.Requests
	// The columns are Section, Subject, Flag, Limit, Effect and Reason.
	return []LimitRow{
		{requestBounds, "duration", "request-timeout", "%s", "504", "requests that wait forever"},
		{requestBounds, "reads in flight", "max-requests-inflight", "%s", "waits, then 429", "CPU and memory"},
		{requestBounds, "writes in flight", "max-mutating-requests-inflight", "%s", "waits, then 429", "CPU and memory"},
		{requestBounds, "body", "", size(request.MaxBody), "413", "memory; etcd takes no larger value"},
		{requestBounds, "pause in a body", "stalled-client-timeout", "%s", "408", "memory of bodies that never arrive"},
		{requestBounds, "headers", "",
			fmt.Sprintf("%s, %s fields", size(conns.DefaultMaxBytes), count(conns.MaxHeaderLines)), "431",
			"memory before authentication"},
		{requestBounds, "`Accept`, `Accept-Encoding` and `Content-Type` together", "",
			size(r.NegotiationFields), "431", "CPU before authentication"},
		{requestBounds, "bearer token", "", size(authenticator.MaxTokenBytes), "401", "CPU before authentication"},
		{requestBounds, "headers of 16 KiB and more of all requests", "",
			size(conns.MaxReservedHeaders) + "; half of it per address", "431, 429",
			"memory before authentication"},
		{requestBounds, "bodies of a priority level", "",
			fmt.Sprintf("%s per CPU, at least %s", size(r.BodyBytesPerCPU), size(r.MinBodyBytes)),
			"waits, then 429", "memory"},
		{requestBounds, "bodies of a principal that wait", "", count(r.WaitingBodies), "429", "memory of waiting requests"},
		{requestBounds, "large bodies worked on (64 KiB, 512 values)", "",
			size(r.LargeBytesPerCPU) + " per CPU but one", "waits, then 429",
			"memory: an object takes many times its text; CPU of other requests"},
		{requestBounds, "large bodies of requests that wait for a webhook or etcd", "",
			size(r.SuspendedBytes), "count as worked on", "memory while a webhook hangs"},
		{requestBounds, "responses whose client does not read", "", count(r.Stalled), "keeps its seats", "memory of the buffers"},
		{requestBounds, "document", "",
			fmt.Sprintf("%s levels, %s lists and objects, %s values, field names of %s",
				count(doccheck.MaxDepth), count(doccheck.MaxContainers), count(doccheck.MaxValues),
				size(doccheck.MaxKey)),
			"400", "memory and CPU of `{},{},…`"},
		{requestBounds, "YAML with its aliases", "", size(doccheck.MaxExpanded), "400", "memory of repeated aliases"},
		{requestBounds, "patch", "",
			fmt.Sprintf("%s operations, %s of copies, %s comparisons", count(patch.MaxOperations),
				size(jsonpatch.MaxCopies), count(patch.MaxCompared)),
			"413, 422", "memory and CPU of repeated copies"},
		{requestBounds, "objects with `managedFields`", "", count(apply.MaxMembers) + " members of lists",
			"413 for an apply", "CPU of the comparison of field owners"},
		{requestBounds, "label and field selectors", "",
			count(requestinfo.MaxRequirements) + " requirements", "400", "CPU for each object of a list"},
		{requestBounds, "large selectors of watches (from about 1 KiB)", "", size(handlers.MaxSelectorBytes),
			"429", "memory of selectors that watches keep"},

		{connectionBounds, "HTTP/2 streams of a connection", "http2-max-streams-per-connection", "%s", "wait", "memory"},
		{connectionBounds, "HTTP/2 resets of an address in a second", "http2-max-resets-per-address", "%s",
			"the connection is read more slowly", "CPU of requests that are canceled at once"},
		{connectionBounds, "logs, exec, port-forward and proxies", "",
			fmt.Sprintf("a quarter of the open file limit, from %s to %s", count(b.MinProxied), count(b.MaxProxied)),
			"429", "open files: each has two connections"},
		{connectionBounds, "proxied HTML pages whose links are rewritten", "", count(b.MaxRewrittenPages) + " at a time; half of them per principal", "passes unchanged", "memory"},
		{connectionBounds, "certificates that a client presents", "", count(certchain.MaxCertificates), "401", "CPU before authentication"},
		{connectionBounds, "WebSocket frame of exec and attach", "", size(kubeletproxy.MaxFrame), "the connection is closed", "memory"},

		{serverBounds, "response of an admission webhook", "",
			fmt.Sprintf("%s, %s values", size(webhooks.MaxResponse), count(webhooks.MaxValues)),
			"`failurePolicy`", "memory"},
		{serverBounds, "response of a conversion webhook", "",
			size(conversion.MaxResponse) + "; four times the request and 1 MiB per object", "500", "memory"},
		{serverBounds, "head of a response", "", size(responselimit.MaxHead), "`failurePolicy`, 500 or 503", "memory: fields take many times their text"},
		{serverBounds, "document of an extension server", "", size(aggregation.MaxDiscovery) + "; OpenAPI v2 " + size(aggregation.MaxOpenAPI),
			"the server is shown as stale", "memory: all clients receive the resources"},
		{serverBounds, "webhook responses of more than 1 MiB", "", count(b.MaxLargeWebhookResponses) + " at a time", "wait", "memory"},
		{serverBounds, "objects that conversion webhooks convert at a time", "",
			size(b.Conversions.Stored) + "; half of it per principal", "wait", "memory while a webhook hangs"},
		{serverBounds, "converted objects of responses that are written", "",
			size(b.Conversions.MaxDocuments) + ", at most an eighth of it counts for a response; half of it per principal", "wait", "memory of slow clients"},
		{serverBounds, "token reviews in progress", "", count(b.MaxConcurrentTokenReviews), "wait, then 429",
			"memory of requests while the service hangs"},
		{serverBounds, "requests waiting for an authorization webhook", "", count(b.MaxQueuedAuthorizations),
			"wait, then 429", "requests of other users while the service hangs"},
		{serverBounds, "requests waiting for an extension server", "",
			"a quarter of the in-flight limits, half of it per user", "429",
			"requests to other servers while one hangs"},
		{serverBounds, "checks of extension servers", "", count(b.MaxConcurrentServerChecks) + " at a time", "wait", "connections"},

		{customBounds, "custom resource with its defaults", "", size(schema.MaxNormalized), "400", "memory of defaults in many items"},
		{customBounds, "regular expressions of a schema", "",
			count(schema.MaxMatched) + " bytes times instructions per request", "422",
			"CPU of nested repetitions"},
		{customBounds, "operators of a CEL expression", "", "about 500", "422", "CPU of the type checker, which is quadratic"},

		{auditBounds, "object in an audit event", "", size(b.MaxAuditObjectBytes), "left out of the event", "memory"},
		{auditBounds, "objects of all requests in progress in audit events", "", size(b.MaxAuditObjectsBytes), "left out of the events", "memory"},
		{auditBounds, "events that wait for an audit backend", "", size(b.MaxAuditQueueBytes),
			"events are lost and counted", "memory while the backend hangs"},
		{auditBounds, "batches that an audit webhook receives at a time", "", count(b.MaxConcurrentAuditPosts), "wait", "connections"},
		{auditBounds, "everything that is kept to answer faster", "cache-memory",
			"a quarter of `GOMEMLIMIT`, or 192 MiB", "evicted", "memory"},
		{auditBounds, "watch history", "watch-history-memory", "two thirds of `--cache-memory`", "older watches get 410", "memory"},
		{auditBounds, "decoded quotas, limit ranges", "",
			fmt.Sprintf("%s objects, %s of each", count(b.Cached.Objects), size(b.Cached.Bytes)),
			"decoded at each use", "memory"},
	}
}

// size formats a number of bytes.
func size[T int | int64](n T) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return count(int(n)) + " bytes"
}

// count formats a number with commas.
func count(n int) string {
	digits := fmt.Sprint(n)
	var out strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			out.WriteByte(',')
		}
		out.WriteRune(d)
	}
	return out.String()
}
