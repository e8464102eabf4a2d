package build

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/api/olderversions"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/storage/encryption"
	"binnacle/services/apiserver/internal/storage/fanout"
	"binnacle/services/apiserver/internal/storage/traced"
)

// stores holds the stores of all objects and the streams of their changes.
type stores struct {
	*mainStore
	root string // prefix of all keys
	// overrideClusters store some resources instead of the main store; resourceClusters finds them
	// by the resource.
	overrideClusters clusters
	resourceClusters map[schema.GroupResource]*cluster
	fanout           *fanout.Fanout // changes of the main store
	// values is the store of all objects, above encryption.
	values              storage.Interface
	encryptionConfig    *encryption.Live
	encryptionResources *encryption.Resources
	olderVersions       *olderversions.Converter
}

func newStores(ctx context.Context, b *base, o *config.Options, c *catalogs, auditor *audit.Auditor) (*stores, error) {
	main, err := newMainStore(ctx, b, &o.Etcd)
	if err != nil {
		return nil, err
	}
	s := &stores{
		mainStore: main, root: b.root,
		encryptionResources: encryption.NewResources(b.root+"/", c.stored()), olderVersions: olderversions.New(c.catalog, c.codec),
	}
	if s.overrideClusters, err = openClusters(b, &o.Etcd, c); err != nil {
		return nil, err
	}
	s.resourceClusters = s.overrideClusters.resources(c)
	if s.encryptionConfig, err = newEncryption(ctx, b, &o.Encryption); err != nil {
		return nil, err
	}
	id := fmt.Sprintf("%s:%d", b.host, b.port)
	if s.fanout, err = fanout.New(fanout.Config{
		Options: o.Fanout, Store: main.store, Elector: main.elector, Root: b.root + "/", Since: fanout.SinceLastCompaction(main.store, b.log),
		ID: id, Logger: b.log, Registerer: b.metrics,
	}); err != nil {
		return nil, err
	}
	s.fanout.Traced(b.traces)
	b.life.inBackground("fan-out", s.fanout.Run)
	for _, other := range s.overrideClusters {
		if err := other.follow(b, o.Fanout, id); err != nil {
			return nil, err
		}
	}
	encrypted := timed(s.overrideClusters.above(main.store), auditor)
	s.values = s.traced(encryption.NewStore(encrypted, s.encryptionConfig, s.encryptionResources, s.olderVersions), b.traces)
	return s, nil
}

// timed returns a store that reports its times to the audit log, if there is one.
func timed(s storage.Interface, auditor *audit.Auditor) storage.Interface {
	if auditor == nil {
		return s
	}
	return &traced.Timed{Interface: s, Took: func(ctx context.Context, d time.Duration) { audit.From(ctx).Spent(audit.Store, d) }}
}

// traced returns a store that makes spans of the calls of values, if tracing is configured.
func (s *stores) traced(values storage.Interface, traces *tracing.Provider) storage.Interface {
	if traces == nil {
		return values
	}
	return &traced.Store{Interface: values, Root: s.root, Wrote: func(ctx context.Context, key string, revision int64, at time.Time) {
		s.fanoutOf(key).Wrote(ctx, key, revision, at)
	}}
}

// fanoutOf returns the change stream of a key.
func (s *stores) fanoutOf(key string) *fanout.Fanout {
	for _, c := range s.overrideClusters {
		for _, prefix := range c.prefixes {
			if strings.HasPrefix(key, prefix) {
				return c.fanout
			}
		}
	}
	return s.fanout
}

// decrypted returns a change stream with decrypted values.
func (s *stores) decrypted(changes *fanout.Fanout) *encryption.Source {
	return encryption.NewSource(changes, s.encryptionConfig, s.encryptionResources, s.olderVersions)
}
