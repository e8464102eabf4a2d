package modes

import (
	"fmt"
	"log/slog"
	"slices"

	"binnacle/libs/abac"
	"binnacle/libs/authorizer"
	"binnacle/libs/features"
	"binnacle/libs/node"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/authz"
	"binnacle/services/apiserver/internal/security/authz/authzconfig"
	"binnacle/services/apiserver/internal/security/authz/authzwebhook"
)

// Builder creates authorizers.
type Builder struct {
	Policy *authz.LocalPolicy
	// Nodes reports whether the policy follows the resources of the node authorizer.
	Nodes bool
	// FeatureEnabled reports whether a feature gate is on.
	FeatureEnabled func(features.Gate) bool
	Conditions     *authzwebhook.Compiler
	Metrics        *authz.Metrics
	WebhookMetrics *authzwebhook.Metrics
	Calls          *webhookclient.Metrics // of webhooks; may be nil
	MaxWaiting     int                    // requests that wait for one webhook
	Dial           webhookclient.Dial     // connects to webhooks; nil connects directly
	Logger         *slog.Logger
}

// authorizerChain holds the authorizers of one configuration.
type authorizerChain struct {
	authorizer.Chain
	webhooks []*authzwebhook.Authorizer
}

// close cancels running calls of the webhooks.
func (c *authorizerChain) close() {
	for _, w := range c.webhooks {
		w.Close()
	}
}

// retire releases unused connections of the webhooks; running calls finish.
func (c *authorizerChain) retire() {
	for _, w := range c.webhooks {
		w.Retire()
	}
}

// buildChain returns the configured authorizers, after those that every server has: for the
// group system:masters, for the suite's own services, and for probes while the policy is
// not loaded.
func (b *Builder) buildChain(c *authzconfig.Configuration) (*authorizerChain, error) {
	out := &authorizerChain{Chain: authorizer.Chain{authorizer.SystemMasters{}, authz.NewSuite()}}
	if decidesByRoles(c) {
		out.Chain = append(out.Chain, authz.NewHealth(b.Policy.Synced))
	}
	for i := range c.Authorizers {
		entry := &c.Authorizers[i]
		built, err := b.authorizerOf(entry)
		if err != nil {
			out.close()
			return nil, fmt.Errorf("authorizer %s: %w", entry.Name, err)
		}
		if w, ok := built.(*authzwebhook.Authorizer); ok {
			out.webhooks = append(out.webhooks, w)
		}
		out.Chain = append(out.Chain, b.Metrics.Decisions(entry.Type, entry.Name, built))
	}
	return out, nil
}

// decidesByRoles reports whether an authorizer reads roles: the RBAC authorizer, or a webhook,
// which may do so.
func decidesByRoles(c *authzconfig.Configuration) bool {
	return slices.ContainsFunc(c.Authorizers, func(a authzconfig.Authorizer) bool {
		return a.Type == authzconfig.RBAC || a.Type == authzconfig.Webhook
	})
}

// authorizerOf returns the authorizer of an entry of the configuration.
func (b *Builder) authorizerOf(entry *authzconfig.Authorizer) (authorizer.Authorizer, error) {
	switch entry.Type {
	case authzconfig.AlwaysAllow:
		return authorizer.AlwaysAllow{}, nil
	case authzconfig.AlwaysDeny:
		return authorizer.AlwaysDeny{}, nil
	case authzconfig.ABAC:
		return abac.Load(entry.PolicyFile, b.Logger)
	case authzconfig.RBAC:
		return b.Policy.Engine, nil
	case authzconfig.Node:
		if !b.Nodes {
			return nil, fmt.Errorf("type %s was not configured at startup: restart the server to add it", authzconfig.Node)
		}
		return node.NewAuthorizer(b.Policy.Graph, b.FeatureEnabled), nil
	case authzconfig.Webhook:
		return b.newWebhook(entry)
	}
	return nil, fmt.Errorf("type %q is not known", entry.Type)
}

// newWebhook returns the authorizer of a webhook entry.
func (b *Builder) newWebhook(entry *authzconfig.Authorizer) (*authzwebhook.Authorizer, error) {
	webhook := entry.Webhook
	config := authzwebhook.Config{
		Name:            entry.Name,
		KubeconfigFile:  *webhook.ConnectionInfo.KubeConfigFile,
		Version:         webhook.SubjectAccessReviewVersion,
		Timeout:         webhook.Timeout.Duration,
		AuthorizedTTL:   webhook.AuthorizedTTL.Duration,
		UnauthorizedTTL: webhook.UnauthorizedTTL.Duration,
		Metrics:         b.WebhookMetrics,
		Calls:           b.Calls,
		Dial:            b.Dial,
		Logger:          b.Logger,
		MaxWaiting:      b.MaxWaiting,
		Suspend:         request.Suspend,
	}
	if webhook.FailurePolicy == authzconfig.PolicyDeny {
		config.FailureDecision = authorizer.Deny
	}
	if len(webhook.MatchConditions) > 0 {
		expressions := make([]string, len(webhook.MatchConditions))
		for i, condition := range webhook.MatchConditions {
			expressions[i] = condition.Expression
		}
		var err error
		if config.Conditions, err = b.Conditions.Compile(expressions); err != nil {
			return nil, err
		}
	}
	return authzwebhook.New(config)
}
