package build

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"binnacle/services/apiserver/internal/admission/plugins/serviceaccount"
	"binnacle/services/apiserver/internal/config"
)

// parallelTests is the default of -parallel. Most tests wait for a server, so it exceeds the number
// of processors.
const parallelTests = 8

func TestMain(tests *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(parallelTests))
	}
	code := tests.Run()
	if err := common.close(); err != nil {
		fmt.Fprintln(os.Stderr, "the shared server:", err)
		code = 1
	}
	os.Exit(code)
}

// common is the server that tests share.
var common commonServer

// commonServer has default flags and a store in memory. It starts with the first test
// that needs it and stops after the last test.
type commonServer struct {
	start      sync.Once
	api        *testServer
	err        error
	stop       func() error
	dir        string
	namespaces atomic.Int64
}

func (c *commonServer) run() {
	var options *config.Options
	c.dir, c.err = os.MkdirTemp("", "apiserver")
	if c.err != nil {
		return
	}
	options, admin, err := newTestOptions(c.dir)
	c.err = err
	if err != nil {
		return
	}
	options.Admission.Disable = []string{serviceaccount.Name}
	c.api, c.stop, c.err = runServer(options, admin)
}

func (c *commonServer) close() (err error) {
	if c.stop != nil {
		err = c.stop()
	}
	if c.dir != "" {
		_ = os.RemoveAll(c.dir)
	}
	return err
}

// sharedServer returns the server that tests share, with a new namespace for this test. A test
// may use it if it works only in its namespace, or fails to write elsewhere.
func sharedServer(t *testing.T) *testServer {
	t.Helper()
	common.start.Do(common.run)
	if common.err != nil {
		t.Fatal(common.err)
	}
	a := *common.api
	a.t = t
	a.namespace = fmt.Sprintf("test-%d", common.namespaces.Add(1))
	a.waitUntil("ready", func() bool { return a.get("/readyz").code == http.StatusOK })
	a.mustSend(http.StatusCreated, http.MethodPost, "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, a.namespace))
	return &a
}

// namespaced returns the path of a resource of the core group in the test's namespace.
func (api *testServer) namespaced(resource string) string {
	return "/api/v1/namespaces/" + api.namespace + "/" + resource
}
