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

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(parallelTests))
	}
	code := m.Run()
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
	api        *api
	err        error
	stop       func() error
	dir        string
	namespaces atomic.Int64
}

func (c *commonServer) run() {
	var o *config.Options
	c.dir, c.err = os.MkdirTemp("", "apiserver")
	if c.err != nil {
		return
	}
	o, admin, err := newTestOptions(c.dir)
	c.err = err
	if err != nil {
		return
	}
	o.Admission.Disable = []string{serviceaccount.Name}
	c.api, c.stop, c.err = run(o, admin)
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

// shared returns the server that tests share, with a new namespace for this test. A test
// may use it if it works only in its namespace, or fails to write elsewhere.
func shared(t *testing.T) *api {
	t.Helper()
	common.start.Do(common.run)
	if common.err != nil {
		t.Fatal(common.err)
	}
	a := *common.api
	a.t = t
	a.ns = fmt.Sprintf("test-%d", common.namespaces.Add(1))
	a.eventually("ready", func() bool { return a.get("/readyz").code == http.StatusOK })
	a.want(http.StatusCreated, http.MethodPost, "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, a.ns))
	return &a
}

// own returns the path of a resource of the core group in the test's namespace.
func (a *api) own(resource string) string { return "/api/v1/namespaces/" + a.ns + "/" + resource }
