package admission

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/cache/watchcache"
)

// Source provides the objects of a kind that configures a plugin, such as webhook configurations.
type Source struct {
	Store *watchcache.Store
	// Decode decodes an entry.
	Decode func(*watchcache.Entry) (metav1.Object, error)
	// WaitForWrites blocks until the store contains all writes that this server has acknowledged.
	WaitForWrites func(context.Context) error
}

// SourceOf returns the source of the objects of a kind. An unreadable object keeps its last
// readable state.
func SourceOf(k lister.CachedResource) Source {
	return Source{Store: k.Store, WaitForWrites: k.WaitForWrites, Decode: lister.LastReadable(k.Coder)}
}
