package build

import (
	"slices"
	"time"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/proxy/kubeletproxy"
	"binnacle/services/apiserver/internal/rest/handlers"
	"binnacle/services/apiserver/internal/rest/subresources/pods"
	"binnacle/services/apiserver/internal/rest/subresources/reviews"
	"binnacle/services/apiserver/internal/rest/subresources/tokens"
)

// operations returns the handlers of operations other than reads and writes of stored objects.
func (p *parts) operations(up *kubeletproxy.Upstream) []handlers.Operation {
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
