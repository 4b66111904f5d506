/* A run-time compiler that takes one program, for the tests of the loader. What it compiles to is the program's own text. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static struct { char text[256], log[256]; int used; } program;

int nvrtcVersion(int *major, int *minor) { return *major = 12, *minor = 8, 0; }
const char *nvrtcGetErrorString(int code) { return code == 6 ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR_UNKNOWN"; }
int nvrtcCreateProgram(void **out, const char *source, const char *name, int count, const char *const *headers,
                       const char *const *names) {
  if (count != 0 || headers || names || program.used) return 1;
  program.used = 1;
  snprintf(program.text, sizeof program.text, "// ptx of %s: %s", name, source);
  program.log[0] = 0;
  *out = &program;
  return 0;
}
int nvrtcDestroyProgram(void **out) {
  program.used = 0;
  *out = NULL;
  return 0;
}
int nvrtcCompileProgram(void *of, int count, const char *const *options) {
  for (int i = 0; i < count; i++) {
    strncat(program.text, " ", sizeof program.text - strlen(program.text) - 1);
    strncat(program.text, options[i], sizeof program.text - strlen(program.text) - 1);
  }
  if (of == &program && strstr(program.text, "wrong") == NULL) return 0;
  snprintf(program.log, sizeof program.log, "line 1: this is wrong\n");
  return 6;
}
int nvrtcGetProgramLogSize(void *of, size_t *size) { return *size = strlen(program.log) + 1, of != &program; }
int nvrtcGetProgramLog(void *of, char *log) { return strcpy(log, program.log), of != &program; }
int nvrtcGetPTXSize(void *of, size_t *size) { return *size = strlen(program.text) + 1, of != &program; }
int nvrtcGetPTX(void *of, char *ptx) { return strcpy(ptx, program.text), of != &program; }
