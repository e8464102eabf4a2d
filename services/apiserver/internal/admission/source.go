package admission

import (
	"context"

	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Source provides the objects of a kind that configures a plugin, such as webhook configurations.
type Source struct {
	Store *watchcache.Store
	// Decode decodes an entry.
	Decode func(*objects.Entry) (metav1.Object, error)
	// WaitForWrites blocks until the store contains all writes that this server has acknowledged.
	WaitForWrites func(context.Context) error
}

// SourceOf returns the source of the objects of a cached resource. If an object becomes corrupt,
// Decode returns the last version of it that it could decode.
func SourceOf(r lister.CachedResource) Source {
	return Source{Store: r.Store, WaitForWrites: r.WaitForWrites, Decode: lister.LastReadable(r.Coder)}
}
