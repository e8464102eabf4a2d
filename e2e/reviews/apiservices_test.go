package reviews

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// listedAPIService is the recorded part of an APIService in a list.
type listedAPIService struct {
	Name            string            `json:"name"`
	Labels          map[string]string `json:"labels"`
	GroupPriority   int               `json:"groupPriorityMinimum"`
	VersionPriority int               `json:"versionPriority"`
	Condition       [][4]string       `json:"condition"`
}

// TestAPIServiceObjects replays exchanges about the objects themselves: validation, defaults,
// objects that the server creates, and table columns.
func TestAPIServiceObjects(t *testing.T) {
	aggregation := newAggregation(t, proxied)
	var recorded []struct {
		Exchange
		Items []listedAPIService `json:"items"`
	}
	if err := loadJSON("testdata/aggregation/4-apiservice-objects.json", &recorded); err != nil {
		t.Fatal(err)
	}
	// The recorder's CA certificate had another size.
	ca, err := base64.StdEncoding.DecodeString(aggregation.values["<base64>"])
	if err != nil {
		t.Fatal(err)
	}
	size := strings.NewReplacer("591 bytes", fmt.Sprintf("%d bytes", len(ca)))
	aggregation.mustRequest("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		`{"metadata":{"name":"gads.ex.test"},"spec":{"group":"ex.test","scope":"Cluster","names":{"plural":"gads","kind":"Gad"},"versions":[
		{"name":"v2alpha1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`)
	for _, test := range recorded {
		t.Run(test.Name, func(t *testing.T) {
			if test.Items != nil {
				for _, d := range aggregation.diffValues("items", test.Items, aggregation.listAPIServices()) {
					t.Error(d)
				}
				return
			}
			want := test.Response
			if err := json.Unmarshal([]byte(size.Replace(jsonText(want.Body))), &want.Body); err != nil {
				t.Fatal(err)
			}
			want.Body = fillPlaceholders(want.Body, map[string]string{"<ext>": aggregation.values["<ext>"]})
			if test.Name == "caBundle nonsense" {
				test.Client.Body.(map[string]any)["spec"].(map[string]any)["caBundle"] = want.Body.(map[string]any)["spec"].(map[string]any)["caBundle"]
			}
			// Objects that the server creates appear asynchronously.
			asynchronous := strings.HasPrefix(test.Name, "made for") || strings.Contains(test.Name, "(custom resource)")
			var diff []string
			for deadline := time.Now().Add(10 * time.Second); ; {
				status, headers, body := aggregation.sendAsRecorder(test.Client, false)
				if body, ok := body.(map[string]any); ok && body["kind"] == "Table" {
					replaceAges(t, want.Body)
					replaceAges(t, body)
				}
				diff = aggregation.diffResponse("response", &want, status, headers, body)
				if status == http.StatusCreated {
					aggregation.deleteAPIService(body.(map[string]any)["metadata"].(map[string]any)["name"].(string))
				}
				if len(diff) == 0 || !asynchronous || time.Now().After(deadline) {
					break
				}
				time.Sleep(20 * time.Millisecond) // polling interval
			}
			for _, d := range diff {
				t.Error(d)
			}
		})
	}
}

// listAPIServices returns the APIServices in the recorder's form, without those of custom
// resources.
func (a *aggregation) listAPIServices() (out []listedAPIService) {
	a.t.Helper()
	_, _, body := a.sendAsRecorder(&ClientRequest{Method: "GET", Path: apiServices}, false)
	data, err := json.Marshal(body)
	if err != nil {
		a.t.Fatal(err)
	}
	var list struct {
		Items []struct {
			Metadata struct {
				Name   string            `json:"name"`
				Labels map[string]string `json:"labels"`
			} `json:"metadata"`
			Spec struct {
				GroupPriority   int `json:"groupPriorityMinimum"`
				VersionPriority int `json:"versionPriority"`
			} `json:"spec"`
			Status struct {
				Conditions []struct{ Type, Status, Reason, Message string } `json:"conditions"`
			} `json:"status"`
		} `json:"items"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		a.t.Fatal(err)
	}
	for _, i := range list.Items {
		if strings.HasSuffix(i.Metadata.Name, ".ex.test") {
			continue
		}
		l := listedAPIService{
			Name:            i.Metadata.Name,
			Labels:          i.Metadata.Labels,
			GroupPriority:   i.Spec.GroupPriority,
			VersionPriority: i.Spec.VersionPriority,
		}
		for _, c := range i.Status.Conditions {
			l.Condition = append(l.Condition, [4]string{c.Type, c.Status, c.Reason, c.Message})
		}
		out = append(out, l)
	}
	return out
}

// replaceAges replaces the ages in the rows of a table by a placeholder.
func replaceAges(t *testing.T, table any) {
	t.Helper()
	rows, _ := table.(map[string]any)["rows"].([]any)
	if len(rows) == 0 {
		t.Fatal("table without rows")
	}
	for _, r := range rows {
		cells := r.(map[string]any)["cells"].([]any)
		cells[len(cells)-1] = "<age>"
	}
}
