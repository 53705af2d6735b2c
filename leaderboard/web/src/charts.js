// The views that draw, in a file of their own, which is loaded when one is looked at: their library is most of the page.

import { Settings } from "./views/settings.js";
import { Size } from "./views/size.js";

globalThis.stsbench("charts", { Settings, Size });
