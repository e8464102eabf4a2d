package config

import (
	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/server/overload"
)

// Limits are the limits on what all clients together may use. No flag sets them. Package build
// passes each one to the constructor that needs it. LimitTable describes them, together with the
// limits of a single document, which are constants of other packages.
type Limits struct {
	Requests overload.Bounds
	// MaxConcurrentTokenReviews is the maximum number of bearer tokens that the token webhook
	// reviews at a time.
	MaxConcurrentTokenReviews int
	// MaxQueuedAuthorizations is the maximum number of requests that wait for one authorization
	// webhook.
	MaxQueuedAuthorizations int
	// MaxLargeWebhookResponses is the maximum number of responses of more than 1 MiB that are read
	// at a time, from admission webhooks and from conversion webhooks.
	MaxLargeWebhookResponses int
	// Conversions bounds the objects that conversion webhooks convert, and the converted objects
	// that responses hold.
	Conversions responsewriters.ConversionBounds
	// MinProxied and MaxProxied bound the limit on concurrent proxied requests. Between them, the
	// limit is a quarter of the open file limit, because each such request has two connections.
	MinProxied, MaxProxied int
	// MaxConcurrentServerChecks is the maximum number of extension servers that are checked at a
	// time.
	MaxConcurrentServerChecks int
	// MaxRewrittenPages is the maximum number of proxied HTML pages, of at most 1 MiB each, whose
	// links are rewritten at a time.
	MaxRewrittenPages int
	// MaxAuditObjectBytes is the maximum size in bytes of an object in an audit event.
	MaxAuditObjectBytes int64
	// MaxAuditObjectsBytes is the maximum size in bytes of all objects that audit events of
	// requests in progress hold.
	MaxAuditObjectsBytes int64
	// MaxAuditQueueBytes is the maximum size in bytes of events that wait for an audit backend.
	MaxAuditQueueBytes int64
	// MaxConcurrentAuditPosts is the maximum number of batches that an audit webhook receives at a
	// time.
	MaxConcurrentAuditPosts int
	// Cached bounds the cached decoded objects of each kind that every write in a namespace reads:
	// quotas and limit ranges.
	Cached lister.Bounds
}

func newLimits() Limits {
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
