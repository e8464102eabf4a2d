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
	for _, k := range catalog(t).Kinds() {
		switch k.Group {
		case "", "apiextensions.k8s.io", "apiregistration.k8s.io":
		default:
			out = append(out, k)
		}
	}
	return out
}

// TestFlags compares the rules of each kind with Kubernetes 1.33. Resources that are not listed
// have the zero value.
func TestFlags(t *testing.T) {
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
	for _, k := range outsideCore(t) {
		if k.Virtual {
			continue
		}
		takes := func(name string) bool { return k.ValidateName == nil || len(k.ValidateName(name, false)) == 0 }
		for _, flag := range []struct {
			name      string
			got, want bool
		}{
			{name: "Generation", got: k.Update.Generation, want: generation[k.Resource]},
			{name: "CreateOnUpdate", got: k.Update.AllowCreateOnUpdate, want: createOnUpdate[k.Resource]},
			{name: "UpdateNeedsVersion", got: k.Update.RequireResourceVersion, want: needsVersion[k.Resource]},
			{name: "ReturnDeleted", got: k.Delete.ReturnObject, want: returnDeleted[k.Resource]},
			{name: "DefaultOrphan", got: k.Delete.Orphan, want: k.Resource == "jobs"},
			{name: "OrphanWarning", got: k.Delete.OrphanWarning != "", want: k.Resource == "jobs"},
			{name: "KeepStatus", got: k.Create.KeepStatus, want: k.Resource == "servicecidrs"},
			{name: "Stamp", got: k.Create.RecordCreator != nil, want: k.Resource == "certificatesigningrequests"},
			{name: "GracePeriod", got: k.Delete.GracePeriod != nil, want: false},
			{name: "takes a name with colons", got: k.ValidateName != nil && takes("system:a:B"), want: pathNames[k.Resource]},
			{name: "takes a name with dots", got: takes("a.b"), want: k.Resource != "statefulsets" && k.Resource != "ipaddresses"},
			{name: "takes an address", got: takes("10.0.0.1"), want: k.Resource != "statefulsets"},
		} {
			if flag.got != flag.want {
				t.Errorf("%s: %s: got %t, want %v", nameOf(k), flag.name, flag.got, flag.want)
			}
		}
	}
}

// TestSelectableLabels checks the selectable fields of each kind, without those of metadata.
func TestSelectableLabels(t *testing.T) {
	want := map[string]string{
		"jobs":                       "status.successful",
		"certificatesigningrequests": "spec.signerName",
		"events": "regarding.kind regarding.namespace regarding.name regarding.uid regarding.apiVersion " +
			"regarding.resourceVersion regarding.fieldPath reason reportingController type",
	}
	for _, k := range outsideCore(t) {
		var labels []string
		for _, f := range k.Presentation.Selectable {
			label := f.Label
			if len(f.Aliases) > 0 {
				label = f.Aliases[0]
			}
			labels = append(labels, label)
		}
		if got := strings.Join(labels, " "); got != want[k.Resource] {
			t.Errorf("%s: got selectable fields %s, want %s", nameOf(k), got, want[k.Resource])
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
	for _, k := range outsideCore(t) {
		t.Run(nameOf(k), func(t *testing.T) {
			if _, ok := k.New().(registry.Object); !ok {
				t.Fatalf("%T: no metadata, want one", k.New())
			}
			for seed := int64(0); seed < rounds; seed++ {
				fill := filler(seed, 0.4)
				obj, old := k.New().(registry.Object), k.New().(registry.Object)
				fill.Fill(obj)
				fill.Fill(old)
				exercise(t, k, obj, old)
			}
			exercise(t, k, k.New().(registry.Object), k.New().(registry.Object))
		})
	}
}

// exercise calls the rules of a kind with two objects, and checks that defaults and conversions are
// consistent.
func exercise(t *testing.T, k *registry.Kind, obj, old registry.Object) {
	t.Helper()
	clone := func() registry.Object { return obj.DeepCopyObject().(registry.Object) }
	if k.Default != nil {
		k.Default(obj)
		once := clone()
		k.Default(obj)
		if !equality.Semantic.DeepEqual(once, obj) {
			t.Errorf("%s: got a change by the second Default, want none", k.Kind)
		}
	}
	if k.Create.Prepare != nil {
		k.Create.Prepare(clone())
	}
	if k.Update.Prepare != nil {
		k.Update.Prepare(clone(), old)
	}
	if k.Create.RecordCreator != nil {
		k.Create.RecordCreator(clone(), registry.Requester{Name: "u", Extra: map[string][]string{"k": {"v"}}})
	}
	if k.Create.Validate != nil {
		k.Create.Validate(obj)
		k.Update.Validate(obj, old)
	}
	if k.DeclarativeValidation != nil {
		k.DeclarativeValidation(obj)
	}
	if k.Create.Warnings != nil {
		k.Create.Warnings(obj)
	}
	if k.Update.Warnings != nil {
		k.Update.Warnings(obj, old)
	}
	for _, c := range k.Presentation.Columns {
		switch cell := c.Cell(obj).(type) {
		case string, int64, bool, registry.Age:
		default:
			t.Errorf("%s: cell %s: got type %T, want string, int64, bool or registry.Age", k.Kind, c.Name, cell)
		}
	}
	if k.Stored.ToStored != nil {
		before := clone()
		stored, err := k.Stored.ToStored(obj)
		if err == nil {
			_, err = k.Stored.FromStored(stored)
		}
		if err != nil {
			t.Errorf("%s: conversion to the stored form and back = %v, want no error", k.Kind, err)
		}
		if !equality.Semantic.DeepEqual(before, obj) {
			t.Errorf("%s: got a modified source of the conversion, want it unchanged", k.Kind)
		}
	}
	for _, s := range k.Subresources {
		if s.Prepare != nil {
			s.Prepare(clone(), old)
		}
		if s.ValidateUpdate != nil {
			s.ValidateUpdate(obj, old)
		}
		if s.Scale != nil {
			exerciseScale(t, k, &s, clone())
		}
	}
}

// exerciseScale calls the functions of a scale subresource.
func exerciseScale(t *testing.T, k *registry.Kind, s *registry.Subresource, obj registry.Object) {
	t.Helper()
	s.Scale.Status(obj)
	s.Scale.SetReplicas(obj, 7)
	if got := s.Scale.Replicas(obj); got != 7 {
		t.Errorf("%s: got %d replicas, want 7", k.Kind, got)
	}
}

// TestViewsKeepSpecAndLiveObject checks that the write of a subresource keeps the spec and does not
// modify the live object.
func TestViewsKeepSpecAndLiveObject(t *testing.T) {
	for _, k := range outsideCore(t) {
		for _, s := range k.Subresources {
			if s.Prepare == nil {
				continue
			}
			t.Run(nameOf(k)+"/"+s.Name, func(t *testing.T) {
				fill := filler(1, 0.2)
				obj, old := k.New().(registry.Object), k.New().(registry.Object)
				fill.Fill(obj)
				fill.Fill(old)
				before := old.DeepCopyObject()
				s.Prepare(obj, old)
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

// TestParts checks that every kind in every version declares how to copy and clear its status and
// spec.
func TestParts(t *testing.T) {
	for _, k := range catalog(t).Kinds() {
		if k.Virtual {
			continue
		}
		t.Run(nameOf(k), func(t *testing.T) {
			p := k.Parts
			if k.HasStatus() && (p.CopyStatus == nil || p.CopySpec == nil) {
				t.Fatal("no function for the status, want one")
			}
			if k.Update.Generation && p.SpecChanged == nil {
				t.Fatal("no function that compares specs, want one")
			}
			fill := filler(1, 0.2)
			obj, old := k.New().(registry.Object), k.New().(registry.Object)
			fill.Fill(obj)
			fill.Fill(old)
			old.SetName(obj.GetName() + "x")
			if p.SpecChanged != nil && (p.SpecChanged(obj, obj) || !p.SpecChanged(obj, old)) {
				t.Error("no difference for a changed spec, want one")
			}
			if p.CopySpec != nil {
				p.CopySpec(obj, old)
				if p.SpecChanged(obj, old) || obj.GetName() == old.GetName() {
					t.Error("CopySpec: got another spec or name, want the same spec and the own name")
				}
			}
			if p.CopyStatus != nil {
				if equality.Semantic.DeepEqual(part(obj, "Status"), part(old, "Status")) {
					t.Error("CopySpec: got the status of the source, want the own one")
				}
				p.CopyStatus(obj, old)
				if !equality.Semantic.DeepEqual(part(obj, "Status"), part(old, "Status")) {
					t.Error("CopyStatus: got another status, want that of the source")
				}
				p.CopyStatus(obj, nil)
				if !equality.Semantic.DeepEqual(part(obj, "Status"), part(k.New().(registry.Object), "Status")) {
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
