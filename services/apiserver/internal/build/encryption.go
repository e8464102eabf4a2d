package build

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"binnacle/libs/features"
	"binnacle/libs/serving/health"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage/encryption"
)

// newEncryption reads the configuration of encryption. Without a file, nothing is encrypted.
func newEncryption(ctx context.Context, b *base, o *config.EncryptionOptions) (*encryption.Live, error) {
	metrics, err := encryption.NewMetrics(b.metrics)
	if err != nil {
		return nil, err
	}
	if o.ConfigFile == "" {
		return encryption.Plain(), nil
	}
	live, err := encryption.Open(ctx, o.ConfigFile, o.Reload, &encryption.Builder{
		KMSv1:    b.gates.Enabled(features.KMSv1),
		ServerID: b.identity,
		Wait: func(ctx context.Context, wait func(context.Context) error) error {
			return request.Wait(ctx, status.ManyWait(), wait)
		},
		Logger: b.log, Metrics: metrics,
	})
	if err != nil {
		return nil, fmt.Errorf("--encryption-provider-config: %w", err)
	}
	b.life.onClose(live.Close)
	if o.Reload {
		b.life.inBackground("encryption configuration", live.Run)
	}
	return live, nil
}

// encryptionChecks adds the health checks of KMS plugins. Each plugin has its own check if the
// configuration is not reloaded and one of the plugins has version 1. Otherwise all plugins share
// one check. The liveness of the server does not depend on them.
func encryptionChecks(h *health.Registry, live *encryption.Live, reloaded bool) {
	set := live.Current()
	switch {
	case set == nil:
	case reloaded:
		h.Add("kms-providers", live.CheckAll, health.Healthz, health.Readyz)
	case set.Together():
		h.Add("kms-providers", live.CheckAll, health.Healthz, health.Readyz)
	default:
		for i := range set.Plugins() {
			h.Add("kms-provider-"+strconv.Itoa(i), func(r *http.Request) error { return set.Check(r.Context(), i) }, health.Healthz, health.Readyz)
		}
	}
}
