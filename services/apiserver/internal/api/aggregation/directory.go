package aggregation

import (
	"encoding/json"
	"iter"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/api/kinds/apiregistration"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	apiregistrationv1 "binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
)

// directory holds what all APIServices at one version of the store define. It does not change.
type directory struct {
	version objects.Version
	remotes map[schema.GroupVersion]*remote
	// byService holds the remotes behind each service.
	byService map[serviceName][]*remote
	// registrations holds the decoded APIServices by their key in the store.
	registrations map[string]*registration
	// local holds the names of APIServices without a service. This server serves them itself.
	local []string
	// localToWrite holds the names in local whose condition Available must still be written.
	localToWrite []string
}

// serviceName identifies a service.
type serviceName struct{ namespace, name string }

// registration is a decoded APIService.
type registration struct {
	entry *objects.Entry
	*apiregistrationv1.APIService
	key string // UID and spec, which change when the APIService names another server
}

// currentDirectory returns the directory of the APIServices in the watch cache. It rebuilds the
// directory if they have changed.
func (a *Aggregator) currentDirectory() *directory {
	if d := a.current.Load(); d.version == a.Store.Snapshot().Version() {
		return d
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	snapshot := a.Store.Snapshot()
	previous := a.current.Load()
	if previous.version == snapshot.Version() { // another goroutine has rebuilt it
		return previous
	}
	next := a.newDirectory(snapshot, previous)
	a.current.Store(next)
	for gv, r := range previous.remotes {
		if next.remotes[gv] != r {
			r.close()
		}
	}
	a.TriggerChecks()
	return next
}

// newDirectory returns the directory of the APIServices in a snapshot. It takes over the
// registrations and remotes of the previous directory whose APIServices have not changed. The
// caller holds a.mu.
func (a *Aggregator) newDirectory(snapshot watchcache.Snapshot, previous *directory) *directory {
	next := &directory{
		version:       snapshot.Version(),
		remotes:       map[schema.GroupVersion]*remote{},
		byService:     map[serviceName][]*remote{},
		registrations: map[string]*registration{},
	}
	snapshot.Ascend(a.Store.Prefix(), "", func(entry *objects.Entry) bool {
		registered := previous.registrations[entry.Key()]
		if registered == nil || registered.entry != entry {
			registered = a.decodeEntry(entry)
			if registered == nil {
				return true
			}
		}
		next.registrations[entry.Key()] = registered
		if registered.Spec.Service == nil {
			next.addLocal(registered.APIService)
			return true
		}
		gv := schema.GroupVersion{Group: registered.Spec.Group, Version: registered.Spec.Version}
		r := a.reuseRemote(previous.remotes[gv], registered)
		r.setStored(availableCondition(registered.APIService))
		next.remotes[gv] = r
		service := serviceName{namespace: registered.Spec.Service.Namespace, name: registered.Spec.Service.Name}
		next.byService[service] = append(next.byService[service], r)
		return true
	})
	return next
}

// addLocal adds an APIService without a service.
func (d *directory) addLocal(apiService *apiregistrationv1.APIService) {
	d.local = append(d.local, apiService.Name)
	stored, wanted := availableCondition(apiService), apiregistration.LocalAvailable()
	if stored == nil || !EqualConditions(stored, &wanted) {
		d.localToWrite = append(d.localToWrite, apiService.Name)
	}
}

// reuseRemote returns old if it is the remote of the registration, and a new remote otherwise. old
// is the previous remote of the group version, or nil.
func (a *Aggregator) reuseRemote(old *remote, registered *registration) *remote {
	if old != nil && old.key == registered.key {
		return old
	}
	r := newRemote(a, registered.key, registered.APIService)
	if old != nil {
		r.delayCheck(old)
		if reflect.DeepEqual(old.spec.Service, r.spec.Service) {
			r.description.Store(old.description.Load()) // until the server responds again
		}
	}
	return r
}

// Registered iterates over the current APIServices. They are shared and must not be changed.
func (a *Aggregator) Registered() iter.Seq[*apiregistrationv1.APIService] {
	registrations := a.currentDirectory().registrations
	return func(yield func(*apiregistrationv1.APIService) bool) {
		for _, r := range registrations {
			if !yield(r.APIService) {
				return
			}
		}
	}
}

// decodeEntry decodes an APIService. If that fails, it logs the error and returns nil.
func (a *Aggregator) decodeEntry(entry *objects.Entry) *registration {
	obj, err := a.Decode(entry)
	if err != nil {
		a.Logger.Error("failed to decode an APIService; no requests to its server", "apiservice", entry.Name(), "error", err)
		return nil
	}
	spec, _ := json.Marshal(obj.Spec) // cannot fail for strings and numbers
	return &registration{entry: entry, APIService: obj, key: string(obj.UID) + string(spec)}
}
