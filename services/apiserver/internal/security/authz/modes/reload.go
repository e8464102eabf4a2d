package modes

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/authorizer"
	"binnacle/libs/features"
	"binnacle/libs/filewatch"
	"binnacle/libs/rbac"
	"binnacle/services/apiserver/internal/security/authz/authzconfig"
)

// Reloadable is an authorizer that decides by the current configuration.
type Reloadable struct {
	builder *Builder
	current atomic.Pointer[authorizerChain]

	// mu orders changes of the chain and of the policy. It is acquired before the locks of the
	// webhooks' caches.
	mu       sync.Mutex
	position rbac.Position
}

// New creates the authorizers of a configuration. Their caches follow the policy.
func New(b *Builder, c *authzconfig.Configuration) (*Reloadable, error) {
	r := &Reloadable{builder: b}
	first, err := b.buildChain(c)
	if err != nil {
		return nil, err
	}
	r.current.Store(first)
	b.Policy.OnChange(r.policyChanged)
	return r, nil
}

// Authorize implements authorizer.Authorizer.
func (r *Reloadable) Authorize(ctx context.Context, attrs *authorizer.Attributes) (authorizer.Decision, string, error) {
	if !r.builder.FeatureEnabled(features.AuthorizeWithSelectors) {
		withoutSelectors := *attrs
		withoutSelectors.FieldSelector = nil
		withoutSelectors.LabelSelector = nil
		attrs = &withoutSelectors
	}
	return r.current.Load().Authorize(ctx, attrs)
}

// RulesFor implements authorizer.RuleResolver.
func (r *Reloadable) RulesFor(ctx context.Context, u *authorizer.User, namespace string) (authorizer.Rules, error) {
	return r.current.Load().RulesFor(ctx, u, namespace)
}

// Close cancels running calls.
func (r *Reloadable) Close() { r.current.Load().close() }

// policyChanged passes a change of the policy to the webhooks' caches.
func (r *Reloadable) policyChanged(c rbac.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.position = c.Position
	for _, w := range r.current.Load().webhooks {
		w.PolicyChanged(c)
	}
}

// replaceChain activates another configuration.
func (r *Reloadable) replaceChain(c *authzconfig.Configuration) error {
	next, err := r.builder.buildChain(c)
	if err != nil {
		return err
	}
	r.mu.Lock()
	for _, w := range next.webhooks {
		w.PolicyChanged(rbac.Change{Position: r.position, All: true})
	}
	old := r.current.Swap(next)
	r.mu.Unlock()
	old.retire()
	return nil
}

// ReloadMetrics counts the reloads of the file.
type ReloadMetrics struct {
	server  string
	total   *prometheus.CounterVec
	seconds *prometheus.GaugeVec
}

// NewReloadMetrics returns the metrics and registers them. Their label is a digest of the server's
// identity.
func NewReloadMetrics(reg prometheus.Registerer, identity string) *ReloadMetrics {
	const prefix = "apiserver_authorization_config_controller_automatic_"
	labels := []string{"apiserver_id_hash", "status"}
	reloadMetrics := &ReloadMetrics{
		server: fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(identity))),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "reloads_total",
			Help: "Number of reloads of the authorization configuration, by status and server.",
		}, labels),
		seconds: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: prefix + "reload_last_timestamp_seconds",
			Help: "Unix timestamp in seconds of the last reload of the authorization configuration, by status and server.",
		}, labels),
	}
	reg.MustRegister(reloadMetrics.total, reloadMetrics.seconds)
	return reloadMetrics
}

// recordReload counts a reload with a status.
func (m *ReloadMetrics) recordReload(status string) {
	m.total.WithLabelValues(m.server, status).Inc()
	m.seconds.WithLabelValues(m.server, status).SetToCurrentTime()
}

// Follow activates each valid content of a file until ctx ends. active is the initially active
// content.
func (r *Reloadable) Follow(ctx context.Context, file string, active []byte, reloadMetrics *ReloadMetrics, log *slog.Logger) error {
	return filewatch.Follow(ctx, log, file, active, func(_ context.Context, data []byte, err error) {
		if err == nil {
			var c *authzconfig.Configuration
			if c, err = authzconfig.Parse(data, r.builder.Conditions); err == nil {
				err = r.replaceChain(c)
			}
		}
		if err != nil {
			reloadMetrics.recordReload("failure")
			log.Error("failed to reload authorization configuration; keeping the previous one", "file", file, "error", err)
			return
		}
		reloadMetrics.recordReload("success")
		log.Info("authorization configuration reloaded", "file", file)
	})
}
