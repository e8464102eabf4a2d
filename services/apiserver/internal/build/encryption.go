package build

import (
	"context"
	"net/http"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/features"
	"binnacle/libs/serving/health"
	"binnacle/libs/task"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/olderversions"
	"binnacle/services/apiserver/internal/controllers/bootstrap"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage/encryption"
)

// buildEncryption wraps the store with encryption.
func (p *parts) buildEncryption(ctx context.Context) error {
	p.encryptionResources = encryption.NewResources(p.root()+"/", p.stored())
	p.encryptionConfig = encryption.Plain()
	metrics, err := encryption.NewMetrics(p.metrics)
	if err != nil {
		return err
	}
	if o := p.options.Encryption; o.ConfigFile != "" {
		host, err := p.options.Hostname()
		if err != nil {
			return err
		}
		if p.encryptionConfig, err = encryption.Open(ctx, o.ConfigFile, o.Reload, &encryption.Builder{
			KMSv1:    p.options.Features.Enabled(features.KMSv1),
			ServerID: bootstrap.Identity(host),
			Wait: func(ctx context.Context, wait func(context.Context) error) error {
				return request.Wait(ctx, status.ManyWait(), wait)
			},
			Logger: p.log, Metrics: metrics,
		}); err != nil {
			return err
		}
		p.close = append(p.close, p.encryptionConfig.Close)
	}
	p.olderVersions = olderversions.New(p.catalog, p.codec)
	p.values = p.traced(encryption.NewStore(p.timed(p.encryptedStore()), p.encryptionConfig, p.encryptionResources, p.olderVersions))
	return nil
}

// stored returns the resources of the built-in kinds by their key prefixes. Of kinds that share a
// prefix, it returns the kind that is stored in its served form.
func (p *parts) stored() map[string]schema.GroupResource {
	out := map[string]schema.GroupResource{}
	for _, k := range p.catalog.Kinds() {
		if k.Virtual || k.Stored.To != nil && p.sharesStore(k) {
			continue
		}
		out[apiset.KeyPrefix(p.root(), k)] = k.StoredGroupResource()
	}
	return out
}

// encryptionTasks returns the task that reloads the configuration.
func (p *parts) encryptionTasks() []task.Task {
	if !p.options.Encryption.Reload {
		return nil
	}
	return []task.Task{{Name: "encryption configuration", Run: p.encryptionConfig.Run}}
}

// encryptionChecks adds the health checks of KMS plugins. Each plugin has its own check if the
// configuration is not reloaded and one of the plugins has version 1. Otherwise all plugins share
// one check. The liveness of the server does not depend on them.
func (p *parts) encryptionChecks() {
	set := p.encryptionConfig.Current()
	switch {
	case set == nil:
	case p.options.Encryption.Reload:
		p.health.Add("kms-providers", p.encryptionConfig.CheckAll, health.Healthz, health.Readyz)
	case set.Together():
		p.health.Add("kms-providers", p.encryptionConfig.CheckAll, health.Healthz, health.Readyz)
	default:
		for i := range set.Plugins() {
			p.health.Add("kms-provider-"+strconv.Itoa(i), func(r *http.Request) error { return set.Check(r.Context(), i) }, health.Healthz, health.Readyz)
		}
	}
}

// damage returns how corrupt objects are reported.
func (p *parts) damage() status.Damage {
	return status.Damage{Named: p.options.Features.Enabled(features.AllowUnsafeMalformedObjectDeletion), Root: p.root()}
}
