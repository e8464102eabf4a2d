package app

import (
	"slices"
	"time"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/endpoints"
	"binnacle/services/apiserver/internal/operations/pods"
	"binnacle/services/apiserver/internal/operations/reviews"
	"binnacle/services/apiserver/internal/operations/tokens"
	"binnacle/services/apiserver/internal/upstream"
)

// operations are all that is answered beside reading and writing what is stored.
func (p *parts) operations(up *upstream.Upstream) []endpoints.Operation {
	on, respond := p.options.Features.Enabled, p.responder()
	return slices.Concat(
		pods.Operations(pods.Config{
			Responder: respond, Writes: p.writes, Fields: p.fields, Upstream: up, Now: time.Now,
			TranslateCommands: on(features.TranslateStreamCloseWebsocketRequests),
			TunnelPortForward: on(features.PortForwardWebsockets), SplitLogStreams: on(features.PodLogsQuerySplitStreams),
			BindingLabels: on(features.PodTopologyLabelsAdmission),
		}),
		tokens.Operations(tokens.Config{Responder: respond, Writes: p.writes, Fields: p.fields, Issuer: p.authn.issuer, Now: time.Now}),
		reviews.Operations(reviews.Config{Responder: respond, Writes: p.writes, Tokens: p.authn.tokens, Authorizer: p.authz.chain, Now: time.Now}),
	)
}
