package openapi_test

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"binnacle/services/apiserver/internal/api/openapi"
)

// manyWidgets returns a definition with many versions.
func manyWidgets(t testing.TB, versions int) []openapi.Group {
	t.Helper()
	var groups []openapi.Group
	for i := range versions {
		g, version := widgets(t, fmt.Sprint(i)), fmt.Sprintf("v%d", i+1)
		g.GroupVersion = schema.GroupVersion{Group: g.GroupVersion.Group, Version: version}
		g.Kinds[0].Version = version
		groups = append(groups, g)
	}
	return groups
}

// TestDocumentsLeaveAProcessor checks that builds of many documents leave one processor to other
// requests.
func TestDocumentsLeaveAProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	synctest.Test(t, func(t *testing.T) {
		service, groups := newSmallService(t), manyWidgets(t, 6)
		gate := make(chan struct{})
		var started atomic.Int32
		for i := range groups {
			schemas := groups[i].Schemas
			groups[i].Schemas = func(r *openapi.SchemaCache, kind string) *spec.Schema {
				started.Add(1)
				<-gate
				return schemas(r, kind)
			}
		}
		service.Replace(groups, nil)
		client := send(t, service, "/openapi/v3", "", seats{})
		synctest.Wait()
		if n := started.Load(); n != 2 {
			t.Errorf("got %d concurrent builds on 3 processors, want 2", n)
		}
		close(gate)
		synctest.Wait()
		if !client.hasEnded() || started.Load() != 6 {
			t.Errorf("got ended %t, %d builds, want 6", client.hasEnded(), started.Load())
		}
	})
}

// TestDocumentsShareCommonParts checks that documents that are built together share the work for
// common parts.
func TestDocumentsShareCommonParts(t *testing.T) {
	service := newSmallService(t)
	get(t, service, "/openapi/v3")
	// allocatedBytes returns the bytes allocated by building the documents of many versions.
	allocatedBytes := func(versions int) uint64 {
		groups := manyWidgets(t, versions)
		service.Replace(nil, nil)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		service.Replace(groups, nil)
		get(t, service, "/openapi/v3")
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	if each := (int64(allocatedBytes(41)) - int64(allocatedBytes(1))) / 40; each > 2<<20 {
		t.Errorf("got %d bytes for each further document, want at most 2 MiB", each)
	}
}

// BenchmarkManyVersions builds the documents of a definition with many versions.
func BenchmarkManyVersions(b *testing.B) {
	for path, accept := range map[string]string{"/openapi/v3": "", "/openapi/v2": protoV2} {
		b.Run(path[len("/openapi/"):], func(b *testing.B) {
			service, groups := newSmallService(b), manyWidgets(b, 100)
			get(b, service, path)
			b.ReportAllocs()
			for b.Loop() {
				service.Replace(nil, nil)
				service.Replace(groups, nil)
				get(b, service, path, "Accept", accept)
			}
		})
	}
}
