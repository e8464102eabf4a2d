package v1_test

import (
	"bytes"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/utils/ptr"

	v1 "binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
)

func sampleService() *v1.APIService {
	apiService := &v1.APIService{
		Spec: v1.APIServiceSpec{
			Service:               &v1.ServiceReference{Namespace: "n", Name: "s", Port: ptr.To[int32](8443)},
			Group:                 "g",
			Version:               "v1",
			InsecureSkipTLSVerify: true,
			CABundle:              []byte("ca"),
			GroupPriorityMinimum:  100,
			VersionPriority:       15,
		},
		Status: v1.APIServiceStatus{
			Conditions: []v1.APIServiceCondition{{Type: v1.Available, Status: v1.ConditionTrue, Reason: "r", Message: "m"}},
		},
	}
	return apiService
}

// TestWireFormHasFieldNumbersOfKubernetes checks the field numbers, by which other servers read
// these objects from the store.
func TestWireFormHasFieldNumbersOfKubernetes(t *testing.T) {
	spec := "\x0a\x09" + "\x0a\x01n" + "\x12\x01s" + "\x18\xfb\x41" + // service
		"\x12\x01g" + "\x1a\x02v1" + "\x20\x01" + "\x2a\x02ca" + "\x38\x64" + "\x40\x0f"
	status := "\x0a\x19" + "\x0a\x09Available" + "\x12\x04True" + "\x1a\x00" + "\x22\x01r" + "\x2a\x01m"
	apiService := sampleService()
	meta, err := apiService.ObjectMeta.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	want := "\x0a" + string(rune(len(meta))) + string(meta) + "\x12" + string(rune(len(spec))) + spec + "\x1a" + string(rune(len(status))) + status
	got, err := apiService.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	var back v1.APIService
	if err := back.Unmarshal(got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(*apiService, back) {
		t.Errorf("got %v, want %v", &back, apiService)
	}
}

// TestListSurvivesSerializer checks that a list survives a round trip through the protobuf
// serializer.
func TestListSurvivesSerializer(t *testing.T) {
	s := runtime.NewScheme()
	if err := v1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	list := &v1.APIServiceList{Items: []v1.APIService{*sampleService(), *sampleService()}}
	list.SetGroupVersionKind(v1.SchemeGroupVersion.WithKind("APIServiceList"))
	ser := protobuf.NewSerializer(s, s)
	var buf bytes.Buffer
	if err := ser.Encode(list, &buf); err != nil {
		t.Fatal(err)
	}
	back, _, err := ser.Decode(buf.Bytes(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	back.GetObjectKind().SetGroupVersionKind(list.GroupVersionKind())
	if !reflect.DeepEqual(list, back) {
		t.Errorf("got %v, want %v", back, list)
	}
	if c := list.DeepCopyObject(); !reflect.DeepEqual(list, c) {
		t.Errorf("copy: got %v, want %v", c, list)
	}
}
