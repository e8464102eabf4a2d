package builtin_test

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/randfill"

	"binnacle/services/apiserver/internal/registry"
)

// setOf returns a set of resource names as used in the facts. The core group has its own test.
func setOf(names ...string) map[string]bool {
	set := map[string]bool{}
	for _, n := range names {
		set[n] = true
	}
	return set
}

// outsideCore returns the kinds of all groups but core whose types come from Kubernetes.
func outsideCore(t *testing.T) []*registry.Kind {
	var out []*registry.Kind
	for _, kind := range catalog(t).Kinds() {
		switch kind.Group {
		case "", "apiextensions.k8s.io", "apiregistration.k8s.io":
		default:
			out = append(out, kind)
		}
	}
	return out
}

// TestKindFlagsEqualReference compares the settings of each kind with Kubernetes 1.33. Resources that
// are not listed have the zero value.
func TestKindFlagsEqualReference(t *testing.T) {
	generation := setOf("daemonsets", "deployments", "replicasets", "statefulsets", "cronjobs", "jobs",
		"ingressclasses", "ingresses", "networkpolicies", "poddisruptionbudgets",
		"mutatingwebhookconfigurations", "validatingadmissionpolicies", "validatingadmissionpolicybindings",
		"validatingwebhookconfigurations", "endpointslices", "flowschemas", "prioritylevelconfigurations")
	createOnUpdate := setOf("events", "leases", "clusterrolebindings", "clusterroles", "rolebindings", "roles", "runtimeclasses")
	needsVersion := setOf(
		"leases",
		"leasecandidates",
		"poddisruptionbudgets",
		"csidrivers",
		"csinodes",
		"csistoragecapacities",
		"volumeattachments",
		"mutatingwebhookconfigurations",
		"validatingadmissionpolicies",
		"validatingadmissionpolicybindings",
		"validatingwebhookconfigurations",
		"runtimeclasses",
	)
	returnDeleted := setOf("csidrivers", "csinodes", "storageclasses", "volumeattachments")
	pathNames := setOf(
		"clusterrolebindings",
		"clusterroles",
		"rolebindings",
		"roles",
		"poddisruptionbudgets",
		"certificatesigningrequests",
	)
	for _, kind := range outsideCore(t) {
		if kind.Virtual {
			continue
		}
		acceptsName := func(name string) bool { return kind.ValidateName == nil || len(kind.ValidateName(name, false)) == 0 }
		for _, flag := range []struct {
			name      string
			got, want bool
		}{
			{name: "Generation", got: kind.Update.Generation, want: generation[kind.Resource]},
			{name: "AllowCreateOnUpdate", got: kind.Update.AllowCreateOnUpdate, want: createOnUpdate[kind.Resource]},
			{name: "RequireResourceVersion", got: kind.Update.RequireResourceVersion, want: needsVersion[kind.Resource]},
			{name: "ReturnObject", got: kind.Delete.ReturnObject, want: returnDeleted[kind.Resource]},
			{name: "Orphan", got: kind.Delete.Orphan, want: kind.Resource == "jobs"},
			{name: "OrphanWarning", got: kind.Delete.OrphanWarning != "", want: kind.Resource == "jobs"},
			{name: "KeepStatus", got: kind.Create.KeepStatus, want: kind.Resource == "servicecidrs"},
			{name: "RecordCreator", got: kind.Create.RecordCreator != nil, want: kind.Resource == "certificatesigningrequests"},
			{name: "GracePeriod", got: kind.Delete.GracePeriod != nil, want: false},
			{name: "accepts a name with colons", got: kind.ValidateName != nil && acceptsName("system:a:B"), want: pathNames[kind.Resource]},
			{name: "accepts a name with dots", got: acceptsName("a.b"), want: kind.Resource != "statefulsets" && kind.Resource != "ipaddresses"},
			{name: "accepts an address", got: acceptsName("10.0.0.1"), want: kind.Resource != "statefulsets"},
		} {
			if flag.got != flag.want {
				t.Errorf("%s: %s: got %t, want %v", nameOf(kind), flag.name, flag.got, flag.want)
			}
		}
	}
}

// TestSelectableFieldsEqualReference checks the selectable fields of each kind, without those of
// metadata.
func TestSelectableFieldsEqualReference(t *testing.T) {
	want := map[string]string{
		"jobs":                       "status.successful",
		"certificatesigningrequests": "spec.signerName",
		"events": "regarding.kind regarding.namespace regarding.name regarding.uid regarding.apiVersion " +
			"regarding.resourceVersion regarding.fieldPath reason reportingController type",
	}
	for _, kind := range outsideCore(t) {
		var labels []string
		for _, f := range kind.Presentation.Selectable {
			label := f.Label
			if len(f.Aliases) > 0 {
				label = f.Aliases[0]
			}
			labels = append(labels, label)
		}
		if got := strings.Join(labels, " "); got != want[kind.Resource] {
			t.Errorf("%s: got selectable fields %s, want %s", nameOf(kind), got, want[kind.Resource])
		}
	}
}

// filler generates random objects without raw JSON.
func filler(seed int64, nilChance float64) *randfill.Filler {
	return randfill.NewWithSeed(seed).NilChance(nilChance).NumElements(1, 3).MaxDepth(12).
		Funcs(func(*runtime.RawExtension, randfill.Continue) {})
}

// TestRulesHoldForRandomObjects checks that for any object, the rules of its kind do not panic, and
// its cells have types that tables support.
func TestRulesHoldForRandomObjects(t *testing.T) {
	const rounds = 30
	for _, kind := range outsideCore(t) {
		t.Run(nameOf(kind), func(t *testing.T) {
			if _, ok := kind.New().(registry.Object); !ok {
				t.Fatalf("%T: no metadata, want some", kind.New())
			}
			for seed := int64(0); seed < rounds; seed++ {
				fill := filler(seed, 0.4)
				obj, old := kind.New().(registry.Object), kind.New().(registry.Object)
				fill.Fill(obj)
				fill.Fill(old)
				exercise(t, kind, obj, old)
			}
			exercise(t, kind, kind.New().(registry.Object), kind.New().(registry.Object))
		})
	}
}

// exercise calls the rules of a kind with two objects, and checks that defaults and conversions are
// consistent.
func exercise(t *testing.T, kind *registry.Kind, obj, old registry.Object) {
	t.Helper()
	clone := func() registry.Object { return obj.DeepCopyObject().(registry.Object) }
	if kind.Default != nil {
		kind.Default(obj)
		once := clone()
		kind.Default(obj)
		if !equality.Semantic.DeepEqual(once, obj) {
			t.Errorf("%s: got a change by the second Default, want none", kind.Kind)
		}
	}
	if kind.Create.Prepare != nil {
		kind.Create.Prepare(clone())
	}
	if kind.Update.Prepare != nil {
		kind.Update.Prepare(clone(), old)
	}
	if kind.Create.RecordCreator != nil {
		kind.Create.RecordCreator(clone(), registry.Requester{Name: "u", Extra: map[string][]string{"k": {"v"}}})
	}
	if kind.Create.Validate != nil {
		kind.Create.Validate(obj)
		kind.Update.Validate(obj, old)
	}
	if kind.DeclarativeValidation != nil {
		kind.DeclarativeValidation(obj)
	}
	if kind.Create.Warnings != nil {
		kind.Create.Warnings(obj)
	}
	if kind.Update.Warnings != nil {
		kind.Update.Warnings(obj, old)
	}
	for _, column := range kind.Presentation.Columns {
		switch cell := column.Cell(obj).(type) {
		case string, int64, bool, registry.Age:
		default:
			t.Errorf("%s: cell %s: got type %T, want string, int64, bool or registry.Age", kind.Kind, column.Name, cell)
		}
	}
	if kind.Stored.ToStored != nil {
		before := clone()
		stored, err := kind.Stored.ToStored(obj)
		if err == nil {
			_, err = kind.Stored.FromStored(stored)
		}
		if err != nil {
			t.Errorf("%s: conversion to the stored form and back = %v, want no error", kind.Kind, err)
		}
		if !equality.Semantic.DeepEqual(before, obj) {
			t.Errorf("%s: got a modified source of the conversion, want it unchanged", kind.Kind)
		}
	}
	for _, subresource := range kind.Subresources {
		if subresource.Prepare != nil {
			subresource.Prepare(clone(), old)
		}
		if subresource.ValidateUpdate != nil {
			subresource.ValidateUpdate(obj, old)
		}
		if subresource.Scale != nil {
			exerciseScale(t, kind, &subresource, clone())
		}
	}
}

// exerciseScale calls the functions of a scale subresource.
func exerciseScale(t *testing.T, kind *registry.Kind, subresource *registry.Subresource, obj registry.Object) {
	t.Helper()
	subresource.Scale.Status(obj)
	subresource.Scale.SetReplicas(obj, 7)
	if got := subresource.Scale.Replicas(obj); got != 7 {
		t.Errorf("%s: got %d replicas, want 7", kind.Kind, got)
	}
}

// TestSubresourceWritesKeepSpecAndLiveObject checks that the write of a subresource keeps the spec and
// does not modify the live object.
func TestSubresourceWritesKeepSpecAndLiveObject(t *testing.T) {
	for _, kind := range outsideCore(t) {
		for _, subresource := range kind.Subresources {
			if subresource.Prepare == nil {
				continue
			}
			t.Run(nameOf(kind)+"/"+subresource.Name, func(t *testing.T) {
				fill := filler(1, 0.2)
				obj, old := kind.New().(registry.Object), kind.New().(registry.Object)
				fill.Fill(obj)
				fill.Fill(old)
				before := old.DeepCopyObject()
				subresource.Prepare(obj, old)
				if !equality.Semantic.DeepEqual(before, old) {
					t.Error("got a modified live object, want it unchanged")
				}
				if got, want := part(obj, "Spec"), part(old, "Spec"); !equality.Semantic.DeepEqual(got, want) {
					t.Errorf("got spec\n%+v, want\n%+v", got, want)
				}
				if got, old := part(obj, "Status"), part(old, "Status"); equality.Semantic.DeepEqual(got, old) {
					t.Error("got the status of the live object, want the sent one")
				}
			})
		}
	}
}

// TestKindsCopyAndClearSpecAndStatus checks that every kind in every version can copy and clear its
// status and spec.
func TestKindsCopyAndClearSpecAndStatus(t *testing.T) {
	for _, kind := range catalog(t).Kinds() {
		if kind.Virtual {
			continue
		}
		t.Run(nameOf(kind), func(t *testing.T) {
			accessors := kind.Parts
			if kind.HasStatus() && (accessors.CopyStatus == nil || accessors.CopySpec == nil) {
				t.Fatal("no function for the status, want one")
			}
			if kind.Update.Generation && accessors.SpecChanged == nil {
				t.Fatal("no function that compares specs, want one")
			}
			fill := filler(1, 0.2)
			obj, old := kind.New().(registry.Object), kind.New().(registry.Object)
			fill.Fill(obj)
			fill.Fill(old)
			old.SetName(obj.GetName() + "x")
			if accessors.SpecChanged != nil && (accessors.SpecChanged(obj, obj) || !accessors.SpecChanged(obj, old)) {
				t.Error("no difference for a changed spec, want one")
			}
			if accessors.CopySpec != nil {
				accessors.CopySpec(obj, old)
				if accessors.SpecChanged(obj, old) || obj.GetName() == old.GetName() {
					t.Error("CopySpec: got another spec or name, want the same spec and the own name")
				}
			}
			if accessors.CopyStatus != nil {
				if equality.Semantic.DeepEqual(part(obj, "Status"), part(old, "Status")) {
					t.Error("CopySpec: got the status of the source, want the own one")
				}
				accessors.CopyStatus(obj, old)
				if !equality.Semantic.DeepEqual(part(obj, "Status"), part(old, "Status")) {
					t.Error("CopyStatus: got another status, want that of the source")
				}
				accessors.CopyStatus(obj, nil)
				if !equality.Semantic.DeepEqual(part(obj, "Status"), part(kind.New().(registry.Object), "Status")) {
					t.Error("CopyStatus(nil): got a status, want an empty one")
				}
			}
		})
	}
}

// part returns the part of an object with a Go field name.
func part(o registry.Object, name string) any {
	return reflect.ValueOf(o).Elem().FieldByName(name).Interface()
}
