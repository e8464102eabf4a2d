package events_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill"

	"binnacle/services/apiserver/internal/api/kinds/events"
	"binnacle/services/apiserver/internal/registry"
)

// eventKind returns the kind of the group events.k8s.io.
func eventKind() *registry.Kind { return events.Kinds()[0] }

// convert converts an event between its versions.
func convert[T registry.Object](t *testing.T, conversion func(registry.Object) (registry.Object, error), obj registry.Object) T {
	t.Helper()
	out, err := conversion(obj)
	if err != nil {
		t.Fatal(err)
	}
	return out.(T)
}

// filler generates random events without a type.
func filler(seed int64) *randfill.Filler {
	return randfill.NewWithSeed(seed).NilChance(0.2).NumElements(1, 3).Funcs(func(_ *metav1.TypeMeta, _ randfill.Continue) {})
}

// TestConversionsAreInverse checks that a random event is the same after its conversion to the other
// form and back.
func TestConversionsAreInverse(t *testing.T) {
	kind := eventKind()
	for seed := int64(0); seed < 100; seed++ {
		served, stored := &eventsv1.Event{}, &corev1.Event{}
		filler(seed).Fill(served)
		filler(seed).Fill(stored)
		servedAgain := convert[*eventsv1.Event](t, kind.Stored.FromStored, convert[*corev1.Event](t, kind.Stored.ToStored, served))
		if !equality.Semantic.DeepEqual(servedAgain, served) {
			t.Fatalf("seed %d, served form: want\n%+v\ngot\n%+v", seed, served, servedAgain)
		}
		storedAgain := convert[*corev1.Event](t, kind.Stored.ToStored, convert[*eventsv1.Event](t, kind.Stored.FromStored, stored))
		if !equality.Semantic.DeepEqual(storedAgain, stored) {
			t.Fatalf("seed %d, stored form: want\n%+v\ngot\n%+v", seed, stored, storedAgain)
		}
	}
}

// TestConversionKeepsEachField checks each field, because inverse conversions may still exchange
// fields.
func TestConversionKeepsEachField(t *testing.T) {
	first := metav1.Unix(1, 0)
	last := metav1.Unix(2, 0)
	eventTime := metav1.NewMicroTime(metav1.Unix(3, 0).Time)
	served := &eventsv1.Event{
		ObjectMeta:               metav1.ObjectMeta{Name: "e"},
		EventTime:                eventTime,
		Series:                   &eventsv1.EventSeries{Count: 2, LastObservedTime: eventTime},
		ReportingController:      "rc",
		ReportingInstance:        "ri",
		Action:                   "a",
		Reason:                   "r",
		Regarding:                corev1.ObjectReference{Name: "about"},
		Related:                  &corev1.ObjectReference{Name: "related"},
		Note:                     "n",
		Type:                     "t",
		DeprecatedSource:         corev1.EventSource{Component: "c", Host: "h"},
		DeprecatedFirstTimestamp: first,
		DeprecatedLastTimestamp:  last,
		DeprecatedCount:          9,
	}
	want := &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: "e"},
		EventTime:           eventTime,
		Series:              &corev1.EventSeries{Count: 2, LastObservedTime: eventTime},
		ReportingController: "rc",
		ReportingInstance:   "ri",
		Action:              "a",
		Reason:              "r",
		InvolvedObject:      corev1.ObjectReference{Name: "about"},
		Related:             &corev1.ObjectReference{Name: "related"},
		Message:             "n",
		Type:                "t",
		Source:              corev1.EventSource{Component: "c", Host: "h"},
		FirstTimestamp:      first,
		LastTimestamp:       last,
		Count:               9,
	}
	if got := convert[*corev1.Event](t, eventKind().Stored.ToStored, served); !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("got stored form\n%+v, want\n%+v", got, want)
	}
}
